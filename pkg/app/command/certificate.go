package command

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"
)

// What manifests/base names.
const (
	namespace  = "globalreserve-system"
	service    = "globalreserve"
	secretName = "globalreserve-tls"

	caKey = "ca.crt" // beside the two of a Secret of this type, as cert-manager has it
)

// life is as long as that of the authorities that kubeadm makes.
const life = 10 * 365 * 24 * time.Hour

// newCertificate returns the command `certificate`, which makes what the server of the manifests serves TLS with, for
// clusters where nothing else issues certificates.
func newCertificate() *cobra.Command {
	inNamespace, name := namespace, secretName
	cmd := &cobra.Command{
		Use:   "certificate",
		Short: "Print a Secret with a certificate for the server of manifests/base",
		Long: "Print the Secret with which the server of manifests/base, or of the Helm chart, serves TLS, for kubectl " +
			"apply -f -\n" +
			"It has a certificate for the Service globalreserve of its namespace and, as " + caKey +
			", the authority by which\n" +
			"clients know the server. The key of that authority is thrown away. Every run makes another one, for ten years.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			secret, err := newSecret(inNamespace, name)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(secret)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&inNamespace, "namespace", inNamespace, "namespace of the server")
	cmd.Flags().StringVar(&name, "name", name, "name of the Secret")
	return cmd
}

func newSecret(inNamespace, name string) (*corev1.Secret, error) {
	if wrong := validation.IsDNS1123Label(inNamespace); len(wrong) > 0 {
		return nil, fmt.Errorf("--namespace %q is not the name of a namespace: %s", inNamespace, wrong[0])
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return nil, fmt.Errorf("--name %q is not the name of a Secret: %s", name, wrong[0])
	}
	host := service + "." + inNamespace + ".svc"
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host: host, AlternateDNS: []string{host + ".cluster.local", "localhost"}, MaxAge: life,
	})
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	leaf, authority := pem.Decode(chain)
	if authority = bytes.TrimSpace(authority); leaf == nil || len(authority) == 0 {
		return nil, errors.New("making a certificate: it came without its authority")
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: inNamespace, Name: name},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey: pem.EncodeToMemory(leaf), corev1.TLSPrivateKeyKey: key, caKey: append(authority, '\n'),
		},
	}, nil
}
