package crd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// suite is a control plane with the definitions installed.
type suite struct{ testbed.Cluster }

// TestDefinitions runs everything on one control plane: each test uses names of its own.
func TestDefinitions(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, Prepare(t.Context(), cp))
	s := &suite{testbed.NewCluster(t, cp)}
	for name, test := range map[string]func(*testing.T){
		"definitions": s.testDefinitions,
		"defaults":    s.testDefaults,
		"quantities":  s.testQuantitiesCompareAsWritten,
		"status":      s.testStatusIsSeparate,
		"final phase": s.testFinalPhase,
		"largest":     s.testLargest,
		"columns":     s.testColumns,
		"records":     s.testRecords,
		"creators":    s.testCreators,
		"servers":     s.testServers,

		"devices: status":  s.testDeviceStatus,
		"devices: columns": s.testDeviceColumns,
		"claims: update":   s.testUpdateClaim,
	} {
		t.Run(name, test)
	}
	for name, r := range refusedSlots {
		if strings.HasPrefix(r.message, ".") || strings.HasPrefix(r.message, ":") {
			r.message = "spec.slots[0]" + r.message
		}
		refused[name] = refusal{slot(r.spec), r.message}
	}
	for kind, table := range map[string]cases{
		"Reservation": {refused, accepted}, "ExtendedResource": {refusedDevices, acceptedDevices},
		"ExtendedResourceClaim":         {refusedClaims, acceptedClaims},
		"ExtendedResourceClaimTemplate": {refusedClaims, acceptedClaims},
	} {
		t.Run(kind+"/create", func(t *testing.T) { s.testCreate(t, kind, table) })
	}
	for kind, table := range map[string]map[string]change{
		"Reservation": changes, "ExtendedResource": deviceChanges, "ExtendedResourceClaim": claimChanges,
		"ExtendedResourceClaimTemplate": templateChanges,
	} {
		t.Run(kind+"/change", func(t *testing.T) { s.testChange(t, kind, table) })
	}
}

// cases are objects, by what is said of them: those that a definition must refuse, with a part of the message
// their author gets, and those it must let through.
type cases struct {
	refused  map[string]refusal
	accepted map[string]string
}

type refusal struct{ spec, message string }

func (s *suite) testCreate(t *testing.T, kind string, table cases) {
	for name, test := range table.refused {
		t.Run("refused/"+name, func(t *testing.T) {
			assertRefused(t, s.create(t, kind, "refused", test.spec), test.spec, test.message)
		})
	}
	for name, spec := range table.accepted {
		t.Run("accepted/"+name, func(t *testing.T) {
			require.NoError(t, s.create(t, kind, name, spec))
		})
	}
	// What the schema admits, Go must decode: an informer would never get past it.
	api := s.Objects.GlobalreserveV1alpha1().RESTClient()
	for _, kind := range kinds {
		_, err := api.Get().Resource(plural(kind)).Do(t.Context()).Get()
		require.NoError(t, err)
	}
}

// change is a patch of an object, and a part of the message it must be refused with, if any.
type change struct{ from, patch, refusal string }

func (s *suite) testChange(t *testing.T, kind string, table map[string]change) {
	number := 0
	for name, test := range table {
		number++
		object := fmt.Sprintf("change-%d", number)
		t.Run(name, func(t *testing.T) {
			require.NoError(t, s.create(t, kind, object, test.from))
			api := s.of(t, kind)
			before, err := api.Get(t.Context(), object, metav1.GetOptions{})
			require.NoError(t, err)
			_, err = api.Patch(t.Context(), object, types.MergePatchType, []byte(test.patch), metav1.PatchOptions{})
			if test.refusal == "" {
				require.NoError(t, err)
				return
			}
			assertRefused(t, err, test.patch, test.refusal)
			after, err := api.Get(t.Context(), object, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, before.GetResourceVersion(), after.GetResourceVersion())
		})
	}
}

func assertRefused(t *testing.T, err error, spec, message string) {
	t.Helper()
	require.Error(t, err, "%s", spec)
	assert.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
	assert.ErrorContains(t, err, message)
}

// create sends an object of a spec in YAML with the strict field validation that kubectl asks for.
func (s *suite) create(t *testing.T, kind, name, spec string) error {
	t.Helper()
	content := fmt.Appendf(nil, "apiVersion: globalreserve.io/v1alpha1\nkind: %s\nmetadata: {name: %s}\n%s", kind, name,
		spec)
	return s.ControlPlane.Apply(t.Context(), content, s.Namespace)
}

// reserve creates a Reservation.
func (s *suite) reserve(t *testing.T, name, spec string) error {
	t.Helper()
	return s.create(t, "Reservation", name, spec)
}

// of reaches the objects of a kind.
func (s *suite) of(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	api, err := s.Resource(object, s.Namespace)
	require.NoError(t, err)
	return api
}

// get reads a Reservation through the typed client, which fails on what Go cannot decode.
func (s *suite) get(t *testing.T, name string) *v1alpha1.Reservation {
	t.Helper()
	reservation, err := s.Reservations().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return reservation
}

func (s *suite) patch(t *testing.T, name, patch string) error {
	t.Helper()
	_, err := s.Reservations().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
