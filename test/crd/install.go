package crd

import (
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// kinds are those that manifests/crd defines.
var kinds = []string{
	"Reservation", "ExtendedResource", "ExtendedResourceClaim", "ExtendedResourceClaimTemplate", "LedgerTerm",
}

func plural(kind string) string { return strings.ToLower(kind) + "s" }

// Definitions are those of all kinds, as manifests/crd has them.
func Definitions() (all []*unstructured.Unstructured, err error) {
	for _, kind := range kinds {
		content, err := controlplane.ReadFile("manifests", "crd", "globalreserve.io_"+plural(kind)+".yaml")
		if err != nil {
			return nil, err
		}
		documents, err := controlplane.Documents(content)
		if err != nil {
			return nil, err
		}
		all = append(all, documents...)
	}
	return all, nil
}

// Prepare is Define, and installs the policies of manifests/base and waits until the API server creates Reservations.
func Prepare(ctx context.Context, cp *controlplane.ControlPlane) error {
	if err := Define(ctx, cp); err != nil {
		return err
	}
	for _, policy := range []string{
		"fence.yaml", "records.yaml", "creators.yaml", "privileges.yaml", "servers.yaml",
	} {
		content, err := controlplane.ReadFile("manifests", "base", policy)
		if err != nil {
			return err
		}
		if err := cp.Apply(ctx, content, ""); err != nil {
			return err
		}
	}
	return awaitCreators(ctx, cp)
}

// awaitCreators waits until the API server writes into Reservations who makes them. It looks for new kinds that its
// mutating policies may change every five seconds; until then it knows the policy but not the kind, and refuses to
// create any.
func awaitCreators(ctx context.Context, cp *controlplane.ControlPlane) error {
	probe := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"ttl": "1m", "slots": []any{map[string]any{"name": "a", "requests": map[string]any{"cpu": "1"}}},
	}}}
	probe.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Reservation"))
	probe.SetName("probe")
	resource, err := cp.Resource(probe, metav1.NamespaceDefault)
	if err != nil {
		return err
	}
	return controlplane.Await(ctx, "Reservations can be created", func(ctx context.Context) error {
		created, err := resource.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && created.GetAnnotations()[v1alpha1.CallerAnnotation] == "" {
			return errors.New("nobody writes who makes them")
		}
		return err
	})
}

// Define creates the definitions of all kinds and waits until the API server serves them.
func Define(ctx context.Context, cp *controlplane.ControlPlane) error {
	all, err := Definitions()
	if err != nil {
		return err
	}
	for _, definition := range all {
		if err := cp.CreateObject(ctx, definition, ""); err != nil {
			return err
		}
	}
	for _, kind := range kinds {
		if err := cp.AwaitServed(ctx, v1alpha1.SchemeGroupVersion.WithKind(kind)); err != nil {
			return err
		}
	}
	return nil
}
