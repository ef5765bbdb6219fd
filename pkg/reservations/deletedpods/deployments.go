package deletedpods

import (
	"context"
	"maps"
	"strings"

	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// Deployments knows the reservation annotations of all Deployments. Of each it
// keeps its name and those annotations only.
type Deployments struct {
	// Watch is of the Deployments.
	Watch  *informer.Watch
	listed *informer.Latch // opened when all of them are known
}

// NewDeployments returns Deployments that are not watched yet.
func NewDeployments(client metadata.Interface, log logrus.FieldLogger) *Deployments {
	ignore := func(*metav1.PartialObjectMetadata) {}
	return &Deployments{listed: informer.NewLatch(), Watch: informer.NewWatch(nil, log, informer.NewSource(
		client, deployments.Resource, client.Resource(deployments), &metav1.PartialObjectMetadata{},
		func(*metav1.PartialObjectMetadata, bool) {}, ignore).Keeping(onlyMarks))}
}

// onlyMarks drops everything but the name and the reservation annotations. Those of a Deployment that is being deleted
// do not count, because no pod of it will come back.
func onlyMarks(obj any) (any, error) {
	full, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	marks := maps.Clone(full.Annotations)
	maps.DeleteFunc(marks, func(key, _ string) bool {
		return full.DeletionTimestamp != nil || !strings.Contains(key, "/reservation")
	})
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.Namespace, Name: full.Name, ResourceVersion: full.ResourceVersion, Annotations: marks,
	}}, nil
}

// run watches until ctx ends.
func (d *Deployments) run(ctx context.Context) {
	_ = d.Watch.Run(ctx, func(context.Context) { d.listed.Open() }, nil)
}

// marks returns what the watch knows of a Deployment, nil where it has no reservation annotations.
func (d *Deployments) marks(namespace, name string) *cluster.Annotations {
	if deployment, ok := d.Watch.Get(namespace + "/" + name).(*metav1.PartialObjectMetadata); ok {
		return cluster.ReadAnnotations(namespace, deployment.Annotations)
	}
	return nil
}
