package fakekube

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/kubeapiserver"
)

// prefix is what the keys of all objects begin with.
const prefix = "/registry"

// storages makes what the registries of kube-apiserver keep their objects in: its own storage and watch cache, on an
// etcd in memory.
type storages struct {
	ctx     context.Context // ends what they run
	etcd    *Etcd
	lag     atomic.Int64 // see Server.Lag
	factory *serverstorage.DefaultStorageFactory

	mu   sync.Mutex // guards stop
	stop []func()
}

func newStorages(ctx context.Context, etcd *Etcd) (*storages, error) {
	options := serveroptions.NewEtcdOptions(storagebackend.NewDefaultConfig(prefix, nil))
	config := kubeapiserver.NewStorageFactoryConfig()
	options.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	config.APIResourceConfig = enabled()
	f, err := config.Complete(options).New()
	if err != nil {
		return nil, fmt.Errorf("how objects are stored: %w", err)
	}
	return &storages{ctx: ctx, etcd: etcd, factory: f}, nil
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s *storages) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, err := s.factory.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("how %s are stored: %w", resource, err)
	}
	return s.options(config, s.factory.ResourcePrefix(resource)), nil
}

func (s *storages) options(config *storagebackend.ConfigForResource, resourcePrefix string) generic.RESTOptions {
	config.EventsHistoryWindow = storagebackend.DefaultEventsHistoryWindow
	return generic.RESTOptions{
		StorageConfig: config, Decorator: s.open, DeleteCollectionWorkers: 1, EnableGarbageCollection: true,
		ResourcePrefix: resourcePrefix,
	}
}

// open is a generic.StorageDecorator.
func (s *storages) open(
	config *storagebackend.ConfigForResource, resourcePrefix string, key func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs,
	indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	versioner := storage.APIObjectVersioner{}
	ctx, cancel := context.WithCancel(s.ctx)
	store, err := etcd3.New(s.etcd.client(ctx, &s.lag), nil, config.Codec, newFunc, newListFunc, config.Prefix,
		resourcePrefix, config.GroupResource, identity.NewEncryptCheckTransformer(), config.LeaseManagerConfig,
		etcd3.NewDefaultDecoder(config.Codec, versioner), versioner)
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("storing %s: %w", config.GroupResource, err)
	}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: store, Versioner: versioner, GroupResource: config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow, ResourcePrefix: resourcePrefix, KeyFunc: key, NewFunc: newFunc,
		NewListFunc: newListFunc, GetAttrsFunc: attrs, IndexerFuncs: triggers, Indexers: indexers, Codec: config.Codec,
	})
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("watching %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(cached, store)
	destroy := sync.OnceFunc(func() {
		delegator.Stop()
		cached.Stop()
		store.Close()
		cancel()
	})
	s.mu.Lock()
	s.stop = append(s.stop, destroy)
	s.mu.Unlock()
	return delegator, destroy, nil
}

// close ends all of them.
func (s *storages) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stop := range s.stop {
		stop()
	}
}
