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
		"ledgerterms",
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
					{Name: "ledgerterms"},
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
	for _, plural := range []string{
		"deployments", "podgroups", "resourceclaims", "resourceslices", "deviceclasses", "extendedresourceclaimtemplates",
	} {
		t.Run(plural, func(t *testing.T) {
			t.Parallel()
			core := fake.NewClientset(testNode("a"))
			fence(t, core)
			clients := withAllKinds(core)
			objects, ok1 := clients.Reservations.(*reservationsfake.Clientset)
			kinds, ok2 := clients.Objects.(*dynamicfake.FakeDynamicClient)
			metadata, ok3 := clients.Metadata.(*metadatafake.FakeMetadataClient)
			require.True(t, ok1 && ok2 && ok3)
			for _, api := range []*clienttesting.Fake{&core.Fake, &objects.Fake, &kinds.Fake, &metadata.Fake} {
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

// withAllKinds has each kind that the server follows where it is installed.
func withAllKinds(core *fake.Clientset) Clients {
	clients := testClients(core)
	objects := reservationsfake.NewSimpleClientset()
	for group, plurals := range map[string][]string{
		v1alpha1.SchemeGroupVersion.String(): {
			"reservations", "extendedresources", "extendedresourceclaims", "extendedresourceclaimtemplates", "ledgerterms",
		},
		"resource.k8s.io/v1":           {"resourceclaims", "resourceslices", "deviceclasses"},
		"scheduling.x-k8s.io/v1alpha1": {"podgroups"},
	} {
		served := &metav1.APIResourceList{GroupVersion: group}
		for _, plural := range plurals {
			served.APIResources = append(served.APIResources, metav1.APIResource{Name: plural})
		}
		objects.Resources = append(objects.Resources, served)
	}
	clients.Reservations = objects
	clients.Objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}: "PodGroupList",
		})
	return clients
}

// The age of each watch is a figure.
func TestAgesOfWatches(t *testing.T) {
	core := fake.NewClientset(testNode("a"))
	fence(t, core)
	a := startWith(t, testOptions(), withAllKinds(core))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, figures := get(t, a, "/metrics")
		for _, kind := range []string{
			"nodes", "pods", "resourcequotas", "reservations", "extendedresources", "extendedresourceclaims",
			"extendedresourceclaimtemplates", "ledgerterms", "deployments", "resourceclaims", "resourceslices", "deviceclasses",
			"podgroups.v1alpha1.scheduling.x-k8s.io",
		} {
			assert.Contains(c, figures, `globalreserve_watch_age_seconds{kind="`+kind+`"}`)
		}
	}, time.Minute, 20*time.Millisecond)
}

// What cannot be written for autoscalers is no reason to decide nothing, and is said where somebody asks.
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
