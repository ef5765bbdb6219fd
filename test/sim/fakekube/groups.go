package fakekube

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // the versions of the groups, as below
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	"k8s.io/kubernetes/pkg/kubelet/client"
	admissionrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	limitrange "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	namespace "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	node "k8s.io/kubernetes/pkg/registry/core/node/storage"
	pod "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	resourcequota "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	resourcerest "k8s.io/kubernetes/pkg/registry/resource/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
)

// provider is what the packages of kube-apiserver's registries have in common.
type provider interface {
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (
		genericapiserver.APIGroupInfo, error)
}

// enabled are the versions that are served.
func enabled() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	config.EnableVersions(v1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion,
		authorizationv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion,
		policyv1.SchemeGroupVersion, schedulingv1.SchemeGroupVersion,
		appsv1.SchemeGroupVersion, admissionv1.SchemeGroupVersion, resourcev1.SchemeGroupVersion)
	return config
}

// groups returns the API groups that are served, with kube-apiserver's own registries.
func groups(options generic.RESTOptionsGetter, allow authorizer.Authorizer, self kubernetes.Interface) (
	[]genericapiserver.APIGroupInfo, error,
) {
	core, err := coreGroup(options, allow, self)
	if err != nil {
		return nil, fmt.Errorf("the registry of pods and nodes: %w", err)
	}
	list := []genericapiserver.APIGroupInfo{core}
	for _, p := range []provider{
		authenticationrest.RESTStorageProvider{},
		authorizationrest.RESTStorageProvider{Authorizer: allow},
		coordinationrest.RESTStorageProvider{},
		eventsrest.RESTStorageProvider{TTL: eventTTL},
		policyrest.RESTStorageProvider{},
		schedulingrest.RESTStorageProvider{},
		admissionrest.RESTStorageProvider{Authorizer: allow, DiscoveryClient: self.Discovery()},
		appsrest.StorageProvider{},
		resourcerest.RESTStorageProvider{NamespaceClient: self.CoreV1().Namespaces(), Authorizer: allow},
	} {
		group, err := p.NewRESTStorage(enabled(), options)
		if err != nil {
			return nil, fmt.Errorf("the registry of %T: %w", p, err)
		}
		list = append(list, group)
	}
	return list, nil
}

// coreGroup has what the product uses of the core group: kube-apiserver's package of all of it also hands out the
// addresses of Services.
func coreGroup(options generic.RESTOptionsGetter, allow authorizer.Authorizer, self kubernetes.Interface) (
	genericapiserver.APIGroupInfo, error,
) {
	group := genericapiserver.NewDefaultAPIGroupInfo("", legacyscheme.Scheme, legacyscheme.ParameterCodec,
		legacyscheme.Codecs)
	nodes, err := node.NewStorage(options, client.KubeletClientConfig{}, nil)
	if err != nil {
		return group, err
	}
	pods, err := pod.NewStorage(options, nodes.KubeletConnectionInfo, nil, self.PolicyV1(), allow)
	if err != nil {
		return group, err
	}
	namespaces, namespacesStatus, namespacesFinalize, err := namespace.NewREST(options)
	if err != nil {
		return group, err
	}
	quotas, quotasStatus, err := resourcequota.NewREST(options)
	if err != nil {
		return group, err
	}
	ranges, err := limitrange.NewREST(options)
	group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
		"nodes": nodes.Node, "nodes/status": nodes.Status,
		"pods": pods.Pod, "pods/status": pods.Status, "pods/binding": pods.Binding, "pods/eviction": pods.Eviction,
		"pods/resize": pods.Resize, "bindings": pods.LegacyBinding,
		"namespaces": namespaces, "namespaces/status": namespacesStatus, "namespaces/finalize": namespacesFinalize,
		"resourcequotas": quotas, "resourcequotas/status": quotasStatus, "limitranges": ranges,
	}
	return group, err
}

// versions are those of a group that have resources, in order.
func versions(group *genericapiserver.APIGroupInfo) []schema.GroupVersion {
	var list []schema.GroupVersion
	for _, version := range group.PrioritizedVersions {
		if len(group.VersionedResourcesStorageMap[version.Version]) > 0 {
			list = append(list, version)
		}
	}
	return list
}
