package clusterload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
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
	// a globalreserve-scheduler in mode local.
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
	content, err := controlplane.ReadFile("manifests", "admission", "base", "webhook.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the webhook's configuration: %w", err)
	}
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(content, &configuration); err != nil {
		return nil, fmt.Errorf("read the webhook's configuration: %w", err)
	}
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &w.URL, CABundle: w.CA}
		configuration.Webhooks[i].TimeoutSeconds = ptr.To[int32](30) // the most there is: the machine may be busy
	}
	return &configuration, nil
}

// Install makes the API server ask the webhook, whose server is ready, and returns when it does.
// change, if not nil, is applied to the configuration of manifests/admission first.
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
	webhooks := cp.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := webhooks.Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("install the webhook: %w", err)
	}
	return awaitWebhook(ctx, cp, true)
}

// Uninstall takes the webhook away again and returns when the API server asks it no more.
func (w *Webhook) Uninstall(ctx context.Context, cp *controlplane.ControlPlane) error {
	configuration, err := w.Configuration()
	if err != nil {
		return err
	}
	webhooks := cp.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	if err := webhooks.Delete(ctx, configuration.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("uninstall the webhook: %w", err)
	}
	return awaitWebhook(ctx, cp, false)
}

// ResourceClaims is the webhook configuration of manifests/admission for ResourceClaims, with the URL of this webhook.
func (w *Webhook) ResourceClaims() (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	content, err := controlplane.ReadFile("manifests", "admission", "base", "resourceclaims.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the webhook's configuration: %w", err)
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(content, &configuration); err != nil {
		return nil, fmt.Errorf("read the webhook's configuration: %w", err)
	}
	url := w.URL + "/resourceclaims"
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: w.CA}
	}
	return &configuration, nil
}

// awaitWebhook waits until the API server asks the webhook, or does not: it takes a moment to notice
// a changed configuration. A pod for a node that does not exist tells, without being created.
func awaitWebhook(ctx context.Context, cp *controlplane.ControlPlane, asks bool) error {
	const nowhere = "no-such-node"
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "webhook-probe-"},
		Spec:       corev1.PodSpec{NodeName: nowhere, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, controlplane.Patience, true, func(ctx context.Context) (bool, error) {
		_, last = cp.Client().CoreV1().Pods(corev1.NamespaceDefault).Create(ctx, probe, dryRun)
		asked := last != nil && strings.Contains(last.Error(), nowhere)
		return asked == asks && (asks || last == nil), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the API server asks the webhook (%t): %w", asks, errors.Join(err, last))
	}
	return nil
}
