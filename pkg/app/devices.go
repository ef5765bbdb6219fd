package app

import (
	"github.com/globalreserve/globalreserve/pkg/controller"
	"github.com/globalreserve/globalreserve/pkg/deviceclaims"
)

// buildDevices sets up what keeps devices and their claims in step with the ledger.
func (a *App) buildDevices(clients Clients) {
	a.devices = deviceclaims.New(deviceclaims.Options{
		Ledger: a.ledger.Observer, Client: clients.Reservations,
		NodeExists: func(name string) bool {
			_, ok := a.cache.Node(name)
			return ok
		},
		Kind:           a.definitions.Kind("extendedresources", "extendedresourceclaims"),
		StateSynced:    a.cache.WaitForSync,
		OnClaimChanged: a.deviceClaimChanged,
		Annotate:       controller.APIPatcher{Pods: clients.Core.CoreV1()}.AnnotateAll,
		Recorder:       a.broadcaster.recorder(),
		Log:            a.log,
	})
}

// deviceClaimChanged tells those who know pods that a claim they name came, went or was made anew.
func (a *App) deviceClaimChanged(namespace, name string) {
	a.cache.ObserveClaimants(namespace, name)
	a.wakeups.DeviceClaimChanged(namespace, name)
	if a.claimChanged != nil {
		a.claimChanged(namespace, name)
	}
}
