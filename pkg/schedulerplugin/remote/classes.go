package remote

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/resourceclaims"
)

// followClasses tells which resources DeviceClasses map to devices, by kube-scheduler's own watch of them. What it returns
// ends when all that there were at the start are told of: nothing is before.
func followClasses(informer cache.SharedIndexInformer, onMapped func(resources []string)) (listed func(context.Context) error, err error) {
	classes := resourceclaims.NewClasses(onMapped)
	observe := func(object any) {
		if class, ok := object.(*resourcev1.DeviceClass); ok {
			classes.Observe(class)
		}
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: observe, UpdateFunc: func(_, after any) { observe(after) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if class, ok := object.(*resourcev1.DeviceClass); ok {
				classes.Forget(class)
			}
		},
	})
	return func(ctx context.Context) error {
		if !cache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
			return context.Cause(ctx)
		}
		classes.Listed()
		return nil
	}, err
}
