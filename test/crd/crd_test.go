package crd

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

const namespace = "default"

// suite is a control plane with the definitions installed and clients for it.
type suite struct {
	typed versioned.Interface
	// raw sends objects as they are written, as kubectl does.
	raw     dynamic.ResourceInterface
	dynamic dynamic.Interface
}

// TestDefinitions runs everything on one control plane: each test uses names of its own.
func TestDefinitions(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	config, err := cp.AdminRESTConfig()
	require.NoError(t, err)
	require.NoError(t, Install(t.Context(), config))
	// Custom resources have no protobuf form, which the harness's configuration asks for.
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	typed, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	raw, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	s := &suite{
		typed:   typed,
		dynamic: raw,
		raw:     raw.Resource(v1alpha1.SchemeGroupVersion.WithResource("reservations")).Namespace(namespace),
	}
	for name, test := range map[string]func(*testing.T){
		"definition":  s.testDefinition,
		"defaults":    s.testDefaults,
		"create":      s.testCreate,
		"change":      s.testChange,
		"quantities":  s.testQuantitiesCompareAsWritten,
		"status":      s.testStatusIsSeparate,
		"final phase": s.testFinalPhase,
		"largest":     s.testLargest,
		"columns":     s.testColumns,
		"informer":    s.testInformer,

		"devices: definitions": s.testDeviceDefinitions,
		"devices: create":      s.testCreateDevices,
		"devices: change":      s.testChangeDevices,
		"devices: columns":     s.testDeviceColumns,
		"devices: informers":   s.testDeviceInformers,
		"claims: create":       s.testCreateClaims,
		"claims: change":       s.testChangeClaims,
		"claims: finalizer":    s.testClaimFinalizer,
	} {
		t.Run(name, test)
	}
}

// parse makes a Reservation of its spec in YAML.
func parse(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte("apiVersion: globalreserve.io/v1alpha1\nkind: Reservation\n" +
		"metadata: {name: " + name + "}\n" + spec))
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON(content))
	return object
}

// create sends a spec in YAML with the strict field validation that kubectl asks for.
func (s *suite) create(t *testing.T, name, spec string) error {
	t.Helper()
	_, err := s.raw.Create(t.Context(), parse(t, name, spec),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	return err
}

// get reads a Reservation through the typed client, which fails on what Go cannot decode.
func (s *suite) get(t *testing.T, name string) *v1alpha1.Reservation {
	t.Helper()
	reservation, err := s.typed.GlobalreserveV1alpha1().Reservations(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return reservation
}
