package fakekube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
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

// newAdmits returns them; they know nothing before start.
func newAdmits(ctx context.Context, self *rest.Config) (*admits, error) {
	client, err := kubernetes.NewForConfig(self)
	if err != nil {
		return nil, fmt.Errorf("the client of admission plugins: %w", err)
	}
	objects, err := dynamic.NewForConfig(self)
	if err != nil {
		return nil, fmt.Errorf("the client of admission plugins for parameters: %w", err)
	}
	policies, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, fmt.Errorf("ValidatingAdmissionPolicies: %w", err)
	}
	a := &admits{admission.NewChainHandler(policies), informers.NewSharedInformerFactory(client, 0)}
	initializer.New(client, objects, a.informers, authorizerfactory.NewAlwaysAllowAuthorizer(),
		feature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), parameters()).
		Initialize(policies)
	return a, policies.ValidateInitialization()
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
