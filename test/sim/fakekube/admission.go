package fakekube

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	hookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatinghooks "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatinghooks "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// admits are the admission plugins of kube-apiserver that a server has.
type admits struct {
	chain     admission.Interface
	informers informers.SharedInformerFactory
}

// newAdmits returns them; they know nothing before start. Webhooks are called by way of webhooks, and last comes last.
func newAdmits(ctx context.Context, self *rest.Config, webhooks http.RoundTripper, last admission.Interface) (
	*admits, error,
) {
	client, err := kubernetes.NewForConfig(self)
	if err != nil {
		return nil, fmt.Errorf("the client of admission plugins: %w", err)
	}
	objects, err := dynamic.NewForConfig(self)
	if err != nil {
		return nil, fmt.Errorf("the client of admission plugins for parameters: %w", err)
	}
	plugins, err := newPlugins()
	if err != nil {
		return nil, err
	}
	if last != nil {
		plugins = append(plugins, last)
	}
	a := &admits{admission.NewChainHandler(plugins...), informers.NewSharedInformerFactory(client, 0)}
	general := initializer.New(client, objects, a.informers, authorizerfactory.NewAlwaysAllowAuthorizer(),
		feature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), parameters())
	hooks := hookinitializer.NewPluginInitializer(reachedBy(webhooks), webhook.NewDefaultServiceResolver())
	for _, plugin := range plugins {
		general.Initialize(plugin)
		hooks.Initialize(plugin)
		if err := admission.ValidateInitialization(plugin); err != nil {
			return nil, fmt.Errorf("the plugin %T: %w", plugin, err)
		}
	}
	return a, nil
}

// newPlugins returns the plugins in kube-apiserver's order.
func newPlugins() ([]admission.Interface, error) {
	mutating, err := mutatinghooks.NewMutatingWebhook(nil)
	if err != nil {
		return nil, fmt.Errorf("mutating webhooks: %w", err)
	}
	policies, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, fmt.Errorf("ValidatingAdmissionPolicies: %w", err)
	}
	checking, err := validatinghooks.NewValidatingAdmissionWebhook(nil)
	if err != nil {
		return nil, fmt.Errorf("validating webhooks: %w", err)
	}
	return []admission.Interface{mutating, policies, checking}, nil
}

// reachedBy has the services of webhooks called by way of network.
func reachedBy(network http.RoundTripper) webhook.AuthenticationInfoResolverWrapper {
	return func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForServiceFunc: func(string, string, int) (*rest.Config, error) {
				return &rest.Config{WrapTransport: func(http.RoundTripper) http.RoundTripper { return network }}, nil
			},
		}
	}
}

// start has the plugins follow what they need until ctx ends. Requests wait for it.
func (a *admits) start(ctx context.Context) { a.informers.Start(ctx.Done()) }

// stop waits for the end of what start began.
func (a *admits) stop() { a.informers.Shutdown() }

// parameters knows the kinds that parameters of policies have.
func parameters() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "globalreserve.io", Version: "v1alpha1", Kind: "LedgerTerm"},
		meta.RESTScopeRoot)
	return mapper
}
