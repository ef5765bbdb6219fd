package fakekube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Times of kube-apiserver, by default.
const (
	eventTTL       = time.Hour
	requestTimeout = time.Minute
	watchTimeout   = 30 * time.Minute
)

// types knows the types of Kubernetes' own objects, for server-side apply.
var types = typeConverter{
	applyconfigurations.NewTypeConverter(clientscheme.Scheme), managedfields.NewDeducedTypeConverter(),
}

// typeConverter has what is posted and not stored, such as a Binding, taken for what it looks like.
type typeConverter struct {
	managedfields.TypeConverter
	deduced managedfields.TypeConverter
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c typeConverter) ObjectToTyped(object runtime.Object, o ...typed.ValidationOptions) (*typed.TypedValue, error) {
	value, err := c.TypeConverter.ObjectToTyped(object, o...)
	if err != nil {
		return c.deduced.ObjectToTyped(object, o...)
	}
	return value, nil
}

// Outside of a process that lives long, errors need no pause: Kubernetes would sleep until the clock is past the last
// one, which may have been in another bubble of testing/synctest.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// Server is one kube-apiserver on an etcd. Close it.
type Server struct {
	handler  http.Handler
	storages *storages
	admits   *admits
	cancel   context.CancelFunc
}

// New returns a server that serves. It reaches webhooks by way of webhooks.
func New(etcd *Etcd, webhooks http.RoundTripper, last admission.Interface) (*Server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cancel: cancel}
	if err := s.start(ctx, etcd, webhooks, last); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// endTime is longer than kube-apiserver waits for what it remembers to be as new as a list asks for. Nothing says when
// it has given up.
const endTime = 10 * time.Second

// Close ends the server, and returns when nothing of it goes on: in a bubble of testing/synctest, which takes no time.
func (s *Server) Close() {
	s.cancel()
	if s.admits != nil {
		s.admits.stop()
	}
	if s.storages != nil {
		s.storages.close()
	}
	time.Sleep(endTime)
}

// Lag has the server hear of changes in etcd so much later, from now on.
func (s *Server) Lag(by time.Duration) { s.storages.lag.Store(int64(by)) }

// Config is that of a client of the server who has a name.
func (s *Server) Config(user string) *rest.Config {
	return &rest.Config{Host: "http://kube-apiserver", Transport: &transport{server: s, user: user}, QPS: -1}
}

func (s *Server) start(ctx context.Context, etcd *Etcd, webhooks http.RoundTripper, last admission.Interface) (
	err error,
) {
	loopback := s.Config("system:apiserver")
	loopback.UserAgent = "kube-apiserver"
	self, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return fmt.Errorf("the server's own client: %w", err)
	}
	if s.storages, err = newStorages(ctx, etcd); err != nil {
		return err
	}
	if s.admits, err = newAdmits(ctx, loopback, webhooks, last); err != nil {
		return err
	}
	list, err := groups(s.storages, authorizerfactory.NewAlwaysAllowAuthorizer(), self)
	if err != nil {
		return err
	}
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	own := map[string]bool{}
	for i := range list {
		own[root(list[i].PrioritizedVersions[0].Group)] = true
		if err := installGroup(container, &list[i], s.admits.chain); err != nil {
			return err
		}
	}
	custom, err := newCustomServer(s.storages, loopback, s.admits.chain)
	if err != nil {
		return err
	}
	s.handler = chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		group := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
		if own["/"+group[0]] || len(group) > 1 && own["/"+group[0]+"/"+group[1]] {
			container.ServeHTTP(w, r)
			return
		}
		custom.GenericAPIServer.Handler.ServeHTTP(w, r)
	}))
	s.admits.start(ctx)
	custom.start(ctx)
	return nil
}

// root is where a group is served, in all its versions.
func root(group string) string {
	if group == "" {
		return genericapiserver.DefaultLegacyAPIPrefix
	}
	return genericapiserver.APIGroupPrefix + "/" + group
}

func installGroup(container *restful.Container, group *genericapiserver.APIGroupInfo, admit admission.Interface) error {
	for _, version := range versions(group) {
		served := map[string][]string{}
		for resource := range group.VersionedResourcesStorageMap[version.Version] {
			served[resource] = []string{version.String()}
		}
		v := &endpoints.APIGroupVersion{
			Root: strings.TrimSuffix(root(version.Group), "/"+version.Group), GroupVersion: version,
			AllServedVersionsByResource: served, Storage: group.VersionedResourcesStorageMap[version.Version],
			ParameterCodec: group.ParameterCodec, Serializer: group.NegotiatedSerializer,
			Creater: group.Scheme, Convertor: group.Scheme, ConvertabilityChecker: group.Scheme,
			UnsafeConvertor: runtime.UnsafeObjectConvertor(group.Scheme), Defaulter: group.Scheme, Typer: group.Scheme,
			Namer: runtime.Namer(meta.NewAccessor()), TypeConverter: types,
			EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
			Authorizer:                 authorizerfactory.NewAlwaysAllowAuthorizer(),
			Admit:                      admit, MinRequestTimeout: watchTimeout,
		}
		if _, _, err := v.InstallREST(container); err != nil {
			return fmt.Errorf("serving %s: %w", version, err)
		}
	}
	return nil
}

// chain puts what kube-apiserver does with every request around its handlers. Who is asking is known already.
func chain(handler http.Handler) http.Handler {
	long := serverfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	handler = filters.WithWarningRecorder(handler)
	handler = serverfilters.WithTimeoutForNonLongRunningRequests(handler, long)
	handler = filters.WithRequestDeadline(handler, nil, nil, long, legacyscheme.Codecs, requestTimeout)
	handler = filters.WithRequestInfo(handler, &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	})
	handler = filters.WithRequestReceivedTimestamp(handler)
	return filters.WithAuditInit(handler)
}
