package app

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/controller"
	"github.com/globalreserve/globalreserve/pkg/deviceclaims"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// buildDevices sets up what keeps devices and their claims in step with the ledger.
func (a *App) buildDevices(clients Clients) {
	a.devices = deviceclaims.New(deviceclaims.Options{
		Ledger: a.ledger, Client: clients.Reservations,
		NodeExists: func(name string) bool {
			_, ok := a.cache.Node(name)
			return ok
		},
		Served:         served(clients.Reservations, "extendedresources", "extendedresourceclaims"),
		StateSynced:    a.cache.WaitForSync,
		OnClaimChanged: a.deviceClaimChanged,
		Annotate:       controller.APIPatcher{Pods: clients.Core.CoreV1()}.AnnotateAll,
		Recorder:       a.reservations.broadcaster.NewRecorder(scheme.Scheme, "globalreserve"),
		Log:            a.log,
	})
	a.reservations.devices = a.devices
}

// deviceClaimChanged tells those who know pods that a claim they name came, went or was made anew.
func (a *App) deviceClaimChanged(namespace, name string) {
	a.cache.ObserveClaimants(namespace, name)
	a.wakeups.DeviceClaimChanged(namespace, name)
	if a.claimChanged != nil {
		a.claimChanged(namespace, name)
	}
}

// served returns how to ask whether the API server knows kinds of ours, by their plural names.
func served(client versioned.Interface, kinds ...string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		list, err := client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.SchemeGroupVersion.String())
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		known := map[string]bool{}
		for i := range list.APIResources {
			known[list.APIResources[i].Name] = true
		}
		for _, kind := range kinds {
			if !known[kind] {
				return false, nil
			}
		}
		return true, nil
	}
}
