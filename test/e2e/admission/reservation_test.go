package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// Room that a Reservation holds is refused to a naive scheduler's pods, and given to those it is for,
// which then say so.
func TestReservationIsKeptAndConsumed(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := t.Context()
	config, err := c.AdminRESTConfig()
	require.NoError(t, err)
	config.ContentType = "application/json"
	objects, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	reservations := objects.GlobalreserveV1alpha1().Reservations(namespace)
	_, err = reservations.Create(ctx, &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"},
		Spec: v1alpha1.ReservationSpec{
			TTL: &metav1.Duration{Duration: time.Hour}, Consumers: &v1alpha1.ConsumerSpec{Index: "web"},
			Slots: []v1alpha1.Slot{{
				Name: "0", NodeName: "node-0", Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, soon, func(t *assert.CollectT) {
		r, err := reservations.Get(ctx, "kept", metav1.GetOptions{})
		assert.NoError(t, err)
		assert.Equal(t, v1alpha1.ReservationAvailable, r.Status.Phase)
	})
	c.create(pod("other", "3"))
	require.ErrorContains(t, c.bind(ctx, "other", "node-0"), "largest holder reservation default/kept/0")
	consumer := pod("consumer", "3")
	consumer.Annotations = map[string]string{v1alpha1.ReservationIndexAnnotation: "web"}
	c.create(consumer)
	require.NoError(t, c.bind(ctx, "consumer", "node-0"))
	bound, err := c.Client().CoreV1().Pods(namespace).Get(ctx, "consumer", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "default/kept/0", bound.Annotations[v1alpha1.MatchedReservationAnnotation])
	eventually(t, soon, func(t *assert.CollectT) {
		r, err := reservations.Get(ctx, "kept", metav1.GetOptions{})
		assert.NoError(t, err)
		assert.Equal(t, v1alpha1.ReservationSucceeded, r.Status.Phase)
	})
	c.requireNeverOvercommitted()
}
