package fakekube

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// customOptions says how CustomResourceDefinitions and their objects are stored.
type customOptions struct {
	*storages
	codec runtime.Codec
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o customOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := o.factory.StorageConfig
	config.Codec = o.codec
	return o.options(config.ForResource(resource), resource.Group+"/"+resource.Resource), nil
}

// customServer is kube-apiserver's server of CustomResourceDefinitions.
type customServer struct {
	*apiserver.CustomResourceDefinitions
}

// newCustomServer returns one that does nothing before start.
func newCustomServer(s *storages, self *rest.Config, admit admission.Interface) (customServer, error) {
	config := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	config.LoopbackClientConfig = self
	config.ExternalAddress = "kube-apiserver:443"
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.RESTOptionsGetter = customOptions{s, apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)}
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions,
		openapinamer.NewDefinitionNamer(apiserver.Scheme))
	config.AdmissionControl = admit
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }
	all := apiserver.Config{GenericConfig: config, ExtraConfig: apiserver.ExtraConfig{
		CRDRESTOptionsGetter: customOptions{s, unstructured.UnstructuredJSONScheme}, MasterCount: 1,
	}}
	server, err := all.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return customServer{}, fmt.Errorf("serving definitions: %w", err)
	}
	s.stop = append(s.stop, server.GenericAPIServer.Destroy)
	return customServer{server}, nil
}

// start returns when the server knows which definitions there are. It looks at that ten times a second, and Kubernetes
// ends the process where it is stopped before it has.
func (c customServer) start(ctx context.Context) {
	c.GenericAPIServer.RunPostStartHooks(ctx)
	known := c.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer().HasSynced
	cache.WaitForCacheSync(ctx.Done(), known)
	time.Sleep(time.Second)
}
