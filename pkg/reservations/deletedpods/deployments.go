package deletedpods

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// Deployments knows the reservation annotations of all Deployments. Of each it
// keeps its name and those annotations only.
type Deployments struct {
	client   metadata.Interface
	informer cache.SharedIndexInformer
}

// NewDeployments returns Deployments that are not watched yet.
func NewDeployments(client metadata.Interface, log logrus.FieldLogger) (*Deployments, error) {
	d := &Deployments{
		client:   client,
		informer: cache.NewSharedIndexInformer(source(client), &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}),
	}
	if err := d.informer.SetTransform(onlyMarks); err != nil {
		return nil, fmt.Errorf("setting up the watch on Deployments: %w", err)
	}
	err := d.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		log.WithError(err).Warn("could not read Deployments, so their annotations do not count; will try again. If this stays: the server needs the rights in manifests/base/rbac.yaml")
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the watch on Deployments: %w", err)
	}
	return d, nil
}

// source lists and watches all Deployments.
func source(client metadata.Interface) cache.ListerWatcher {
	all := client.Resource(deployments)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := all.Watch(ctx, o)
			if err != nil && o.SendInitialEvents != nil {
				err = withoutCause(err)
			}
			return w, err
		},
	}, client)
}

// withoutCause hides from a reflector that an API server refuses connections. Where that happens to
// its first request, it waits for up to a minute and a stop has to wait as well (watchList of client-go
// 0.37); after other errors it lists, and then waits in a way that a stop ends.
func withoutCause(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return errors.New(err.Error())
	}
	return err
}

// onlyMarks drops everything but the name and the reservation annotations.
func onlyMarks(obj any) (any, error) {
	full, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	kept := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.Namespace, Name: full.Name, ResourceVersion: full.ResourceVersion,
	}}
	for key, value := range asking(full) {
		if strings.Contains(key, "/reservation") {
			if kept.Annotations == nil {
				kept.Annotations = map[string]string{}
			}
			kept.Annotations[key] = value
		}
	}
	return kept, nil
}

// asking returns the annotations that count: those of a Deployment that is being
// deleted do not, because no pod of it will come back.
func asking(deployment *metav1.PartialObjectMetadata) map[string]string {
	if deployment.DeletionTimestamp != nil {
		return nil
	}
	return deployment.Annotations
}

// run watches until ctx ends.
func (d *Deployments) run(ctx context.Context) { d.informer.RunWithContext(ctx) }

// marks returns what the watch knows of a Deployment, nil where it has no
// reservation annotations.
func (d *Deployments) marks(namespace, name string) *podinfo.Marks {
	obj, ok, err := d.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	if deployment, ok := obj.(*metav1.PartialObjectMetadata); ok {
		return podinfo.ReadMarks(namespace, deployment.Annotations)
	}
	return nil
}

// live reads what the API server has of a Deployment. One that is gone has no
// annotations.
func (d *Deployments) live(ctx context.Context, namespace, name string) (*podinfo.Marks, error) {
	deployment, err := d.client.Resource(deployments).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Deployment %s/%s: %w", namespace, name, err)
	default:
		return podinfo.ReadMarks(namespace, asking(deployment)), nil
	}
}
