package clusterload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// Webhook is how the API server reaches the admission webhook of a GlobalReserve server.
type Webhook struct {
	// URL is what the webhook configuration names.
	URL string
	// CA is the authority of the server's certificate, in PEM.
	CA []byte
	// Args are those with which the server serves it, and PluginArgs those in the configuration of
	// a globalreserve-scheduler.
	Args       []string
	PluginArgs map[string]any
}

// NewWebhook chooses a port and makes a certificate for a server's webhook. Start the server with
// its Args, then Install it.
func NewWebhook(cp *controlplane.ControlPlane) (*Webhook, error) {
	port, err := cp.FreePort()
	if err != nil {
		return nil, err
	}
	certFile, keyFile, err := cp.ServingCertificate("webhook-" + strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(cp.CAFile())
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	return &Webhook{
		URL: fmt.Sprintf("https://127.0.0.1:%d/admission", port), CA: ca,
		Args: []string{
			"--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile,
			"--secure-bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
			"--client-ca-file=" + cp.CAFile(), "--admission-client-names=" + controlplane.WebhookClient,
		},
		PluginArgs: map[string]any{
			"tlsCertFile": certFile, "tlsPrivateKeyFile": keyFile, "secureBindAddress": "127.0.0.1", "securePort": port,
			"clientCAFile": cp.CAFile(), "admissionClientNames": []string{controlplane.WebhookClient},
		},
	}, nil
}

// Configuration is the webhook configuration of manifests/admission with the URL of this webhook.
func (w *Webhook) Configuration() (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := readConfiguration("webhook.yaml", &configuration); err != nil {
		return nil, err
	}
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig = w.client("")
		configuration.Webhooks[i].TimeoutSeconds = ptr.To[int32](30) // the most there is: the machine may be busy
	}
	return &configuration, nil
}

// Validating is a validating webhook configuration of manifests/admission, pods.yaml or resourceclaims.yaml, with the
// URL of this webhook.
func (w *Webhook) Validating(file string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := readConfiguration(file, &configuration); err != nil {
		return nil, err
	}
	hook := &configuration.Webhooks[0]
	hook.ClientConfig = w.client(strings.TrimPrefix(*hook.ClientConfig.Service.Path, "/admission"))
	hook.TimeoutSeconds = ptr.To[int32](30)
	return &configuration, nil
}

// client is how the API server reaches a path below the webhook's URL.
func (w *Webhook) client(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(w.URL + path), CABundle: w.CA}
}

func readConfiguration(file string, into any) error {
	content, err := controlplane.ReadFile("manifests", "admission", "base", file)
	if err == nil {
		err = yaml.UnmarshalStrict(content, into)
	}
	if err != nil {
		return fmt.Errorf("read the webhook's configuration: %w", err)
	}
	return nil
}

// Install makes the API server ask the webhook, whose server is ready, and returns when it does.
// change, if not nil, is applied to the configuration of manifests/admission first; what it says of pods holds for the
// validating webhook, too.
func (w *Webhook) Install(
	ctx context.Context, cp *controlplane.ControlPlane, change func(*admissionregistrationv1.MutatingWebhookConfiguration),
) error {
	configuration, err := w.Configuration()
	if err != nil {
		return err
	}
	if change != nil {
		change(configuration)
	}
	validating, err := w.Validating("pods.yaml")
	if err != nil {
		return err
	}
	created, hooks := &validating.Webhooks[0], cp.Client().AdmissionregistrationV1()
	for _, hook := range configuration.Webhooks {
		if hook.Name == pods {
			created.FailurePolicy, created.NamespaceSelector = hook.FailurePolicy, hook.NamespaceSelector
		}
	}
	if _, err := hooks.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("install the validating webhook: %w", err)
	}
	if err := awaitWebhook(ctx, cp, created.Name); err != nil {
		return err
	}
	if _, err := hooks.MutatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("install the webhook: %w", err)
	}
	return awaitWebhook(ctx, cp, pods)
}

// pods is the name of the webhook in manifests/admission/base/webhook.yaml that plans pods with a node.
const pods = "pods.globalreserve.io"

// Uninstall takes the webhook away again and returns when the API server asks it no more.
func (w *Webhook) Uninstall(ctx context.Context, cp *controlplane.ControlPlane) error {
	hooks := cp.Client().AdmissionregistrationV1()
	err := errors.Join(
		hooks.MutatingWebhookConfigurations().Delete(ctx, "zz-globalreserve", metav1.DeleteOptions{}),
		hooks.ValidatingWebhookConfigurations().Delete(ctx, "zz-globalreserve", metav1.DeleteOptions{}),
	)
	if err != nil {
		return fmt.Errorf("uninstall the webhook: %w", err)
	}
	return awaitWebhook(ctx, cp, "")
}

// awaitWebhook waits until the API server asks a webhook about pods first, or none where that is empty: it takes a
// moment to notice a changed configuration. A pod for a node that does not exist tells, without being created.
func awaitWebhook(ctx context.Context, cp *controlplane.ControlPlane, hook string) error {
	const nowhere = "no-such-node"
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "webhook-probe-"},
		Spec:       corev1.PodSpec{NodeName: nowhere, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	return controlplane.Await(ctx, fmt.Sprintf("the webhook %q is asked", hook), func(ctx context.Context) error {
		_, err := cp.Client().CoreV1().Pods(corev1.NamespaceDefault).Create(ctx, probe, dryRun)
		if hook == "" {
			return err
		}
		if err != nil && strings.Contains(err.Error(), nowhere) &&
			strings.Contains(err.Error(), strconv.Quote(hook)) {
			return nil
		}
		return errors.Join(errors.New("it is not"), err)
	})
}
