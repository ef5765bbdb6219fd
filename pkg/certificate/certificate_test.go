package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Whoever has the authority in the Secret takes its certificate for the server's, and for nobody else's.
func TestCertificate(t *testing.T) {
	var out bytes.Buffer
	cmd := NewCommand()
	cmd.SetArgs([]string{})
	cmd.SetOut(&out)
	require.NoError(t, cmd.Execute())
	var secret corev1.Secret
	require.NoError(t, yaml.UnmarshalStrict(out.Bytes(), &secret))
	assert.Equal(t, corev1.SecretTypeTLS, secret.Type)
	assert.Equal(t, "globalreserve-system/globalreserve-tls", secret.Namespace+"/"+secret.Name, "as manifests/ mount it")
	assert.Equal(t, metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, secret.TypeMeta)

	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(secret.Data["ca.crt"]))
	for name, ok := range map[string]bool{
		ServerName: true, ServerName + ".cluster.local": true, "localhost": true, "kubernetes.default.svc": false,
	} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: time.Now().AddDate(9, 0, 0)})
		assert.Equal(t, ok, err == nil, "%s: %v", name, err)
	}
}
