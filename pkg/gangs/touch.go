package gangs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
)

// One write takes at most touchTimeout, and what fails is told once in touchTold. Each has kube-scheduler try all pods
// that were given up for their gang's sake, whichever that is: so there are touchesPerSecond of all gangs together.
const (
	touchTimeout     = 5 * time.Second
	touchTold        = time.Minute
	touchesPerSecond = 2
)

// Touch changes an annotation of a gang's object, where the policy says of its kind that this has the scheduler try the
// gang's pods again. The change is made soon, and at most once. Touch does not block.
func (g *Gangs) Touch(key kinds.Key) {
	if kind := g.kinds[key.Kind]; kind != nil && kind.Object != nil && kind.Object.Touch {
		g.touched.Add(key)
	}
}

// touch is the work of the queue. It is not tried again after a failure: pkg/arbiter calls Touch again where it has to.
func (g *Gangs) touch(ctx context.Context, key kinds.Key) error {
	object, _ := g.object(key)
	if object == nil || g.limiter.Wait(ctx) != nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(object.reference.APIVersion)
	if err != nil {
		return nil // the API server serves no such objects
	}
	resource := gv.WithResource(g.kinds[key.Kind].Object.Resource)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.UID, "annotations": map[string]string{v1alpha1.RetryAnnotation: rand.Text()},
	}})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, touchTimeout)
		defer cancel()
		_, err = g.Client.Resource(resource).Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: fieldManager})
	}
	switch {
	case err == nil:
		g.Metrics.ObserveGangTouch(false)
		g.Log.WithField("gang", key.String()).
			Info("the object of a gang was annotated, for its scheduler may have given up the rest of the gang")
		return nil
	case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	}
	g.Metrics.ObserveGangTouch(true)
	advice := ""
	if apierrors.IsForbidden(err) {
		advice = fmt.Sprintf(": let this server patch %s, as manifests/base/rbac.yaml does for podgroups",
			resource.GroupResource())
	}
	g.failures.Do(func() {
		g.Log.WithError(err).Warnf("%s could not be annotated, so that its scheduler may leave its pods alone for minutes%s",
			key, advice)
	})
	return nil
}
