package app

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	reservationsfake "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
)

// A server that lacks a right says on /readyz which, and what gives it, whatever kind it is for.
func TestMissingRightIsNamed(t *testing.T) {
	for _, plural := range []string{
		"nodes", "pods", "resourcequotas", "reservations", "extendedresources", "extendedresourceclaims", "leases",
	} {
		t.Run(plural, func(t *testing.T) {
			t.Parallel()
			core := fake.NewClientset(testNode("a"))
			fence(t, core)
			objects := reservationsfake.NewSimpleClientset()
			objects.Resources = []*metav1.APIResourceList{{
				GroupVersion: v1alpha1.SchemeGroupVersion.String(),
				APIResources: []metav1.APIResource{
					{Name: "reservations"},
					{Name: "extendedresources"},
					{Name: "extendedresourceclaims"},
				},
			}}
			deny(&core.Fake, plural)
			deny(&objects.Fake, plural)
			clients := testClients(core)
			clients.Reservations = objects
			a := startWith(t, testOptions(), clients)
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				status, text := get(t, a, "/readyz")
				assert.Equal(c, http.StatusServiceUnavailable, status)
				assert.Contains(c, text, "the API server denies this server "+plural+" ("+plural)
				assert.Contains(c, text, `is forbidden: User "robot" cannot`)
				assert.Contains(c, text, "apply manifests/base/rbac.yaml")
			}, time.Minute, 20*time.Millisecond)
		})
	}
}

// A kind that few pods need is no reason to decide nothing, and is named where somebody asks.
func TestMissingRightForFewPods(t *testing.T) {
	for plural, group := range map[string]string{
		"deployments": "", "podgroups": "scheduling.x-k8s.io/v1alpha1",
		"resourceclaims": "resource.k8s.io/v1", "resourceslices": "resource.k8s.io/v1", "deviceclasses": "resource.k8s.io/v1",
	} {
		t.Run(plural, func(t *testing.T) {
			t.Parallel()
			core := fake.NewClientset(testNode("a"))
			fence(t, core)
			clients := testClients(core)
			objects := reservationsfake.NewSimpleClientset()
			objects.Resources = []*metav1.APIResourceList{{GroupVersion: group, APIResources: []metav1.APIResource{
				{Name: "podgroups"}, {Name: "resourceclaims"}, {Name: "resourceslices"}, {Name: "deviceclasses"},
			}}}
			clients.Reservations = objects
			kinds := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{
					{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}: "PodGroupList",
				})
			clients.Objects = kinds
			metadata, ok := clients.Metadata.(*metadatafake.FakeMetadataClient)
			require.True(t, ok)
			for _, api := range []*clienttesting.Fake{&core.Fake, &kinds.Fake, &metadata.Fake} {
				deny(api, plural)
			}
			a := startWith(t, testOptions(), clients)
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				status, text := get(t, a, "/readyz?verbose")
				assert.Equal(c, http.StatusOK, status)
				assert.Contains(c, text, "not read: the API server denies this server "+plural)
				assert.Contains(c, text, "("+plural+` is forbidden: User "robot" cannot`)
				assert.Contains(c, text, "apply manifests/base/rbac.yaml")
			}, time.Minute, 20*time.Millisecond)
		})
	}
}

// What autoscalers cannot be told is no reason to decide nothing, and is said where somebody asks.
func TestMissingRightsOfAutoscaling(t *testing.T) {
	core := fake.NewClientset(testNode("secret-node"))
	fence(t, core)
	core.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "secret-node", nil)
	})
	objects := reservationsfake.NewSimpleClientset(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "r"},
		Spec: v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{
			{Name: "s", NodeName: "secret-node", Requests: v1.ResourceList{"cpu": resource.MustParse("1")}},
		}},
	})
	objects.Resources = []*metav1.APIResourceList{{
		GroupVersion: v1alpha1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "reservations"}},
	}}
	clients := testClients(core)
	clients.Reservations = objects
	a := startWith(t, testOptions(), clients)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, text := get(t, a, "/readyz?verbose")
		assert.Equal(c, http.StatusOK, status)
		assert.Contains(c, text, "autoscalers: not told: the API server denies this server nodes (")
		assert.Contains(c, text, "apply manifests/base/rbac.yaml")
		assert.NotContains(c, text, "secret-node", "nobody is asked who he is there")
	}, time.Minute, 20*time.Millisecond)
}

// deny has a fake API server refuse everything about a kind.
func deny(api *clienttesting.Fake, plural string) {
	refused := func(verb string) error {
		status := apierrors.NewForbidden(schema.GroupResource{Resource: plural}, "", nil)
		status.ErrStatus.Message = plural + ` is forbidden: User "robot" cannot ` + verb
		return status
	}
	api.PrependReactor("*", plural, func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, refused(a.GetVerb())
	})
	api.PrependWatchReactor(plural, func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, refused("watch")
	})
}
