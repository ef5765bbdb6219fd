package command

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// serverName is where the server of manifests/base is reached.
const serverName = "globalreserve.globalreserve-system.svc"

// Whoever has the authority in the Secret takes its certificate for the server's, and for nobody else's.
func TestCertificate(t *testing.T) {
	secret := made(t)
	assert.Equal(t, corev1.SecretTypeTLS, secret.Type)
	assert.Equal(t, "globalreserve-system/globalreserve-tls", secret.Namespace+"/"+secret.Name, "as manifests/ mount it")
	assert.Equal(t, metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, secret.TypeMeta)
	requireFor(t, secret, map[string]bool{
		serverName: true, serverName + ".cluster.local": true, "localhost": true, "kubernetes.default.svc": false,
	})
	secret = made(t, "--namespace=here", "--name=own")
	assert.Equal(t, "here/own", secret.Namespace+"/"+secret.Name)
	requireFor(t, secret, map[string]bool{"globalreserve.here.svc": true, serverName: false})
}

// made is the Secret that the command prints.
func made(t *testing.T, args ...string) (secret corev1.Secret) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCertificate()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	require.NoError(t, cmd.Execute())
	require.NoError(t, yaml.UnmarshalStrict(out.Bytes(), &secret))
	return secret
}

// requireFor fails unless the certificate is for those names, and only those, that are true.
func requireFor(t *testing.T, secret corev1.Secret, names map[string]bool) {
	t.Helper()
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(secret.Data["ca.crt"]))
	for name, ok := range names {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: time.Now().AddDate(9, 0, 0)})
		assert.Equal(t, ok, err == nil, "%s: %v", name, err)
	}
}

func TestNamesOfNothing(t *testing.T) {
	for flag, want := range map[string]string{
		"--namespace=":    `--namespace "" is not the name of a namespace`,
		"--namespace=a.b": "is not the name of a namespace", "--name=a_b": "is not the name of a Secret",
	} {
		cmd := newCertificate()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{flag})
		cmd.SetOut(io.Discard)
		require.ErrorContains(t, cmd.Execute(), want)
	}
}
