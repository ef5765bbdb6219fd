package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/informers/externalversions"
)

// etcdLimit is the most bytes of one request to etcd, by its default --max-request-bytes.
const etcdLimit = 1536 * 1024

// serverWait is how long a real server may take to do what a test waits for.
const serverWait = 30 * time.Second

func (s *suite) testDefinition(t *testing.T) {
	resources, err := s.typed.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	require.NoError(t, err)
	names := map[string]metav1.APIResource{}
	for _, r := range resources.APIResources {
		names[r.Name] = r
	}
	require.Contains(t, names, "reservations")
	require.Contains(t, names, "reservations/status")
	assert.Equal(t, []string{"rsv"}, names["reservations"].ShortNames)
	assert.Equal(t, "Reservation", names["reservations"].Kind)
	assert.True(t, names["reservations"].Namespaced)
}

// A group of MaxSlots, every name as long as a label may be, every slot consumed, is one object that
// etcd takes. The size is that of the server's JSON, which is what it stores.
func (s *suite) testLargest(t *testing.T) {
	const name = "largest"
	long := func(kind string, i int) string {
		return fmt.Sprintf("%s-%0*d", kind, 63-len(kind)-1, i)
	}
	uid := func(i int) types.UID { return types.UID(fmt.Sprintf("4b1e7b0e-6c1f-4b57-9a39-%012d", i)) }
	reservation := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range v1alpha1.MaxSlots {
		reservation.Spec.Slots = append(reservation.Spec.Slots, v1alpha1.Slot{
			Name: long("worker", i), NodeName: long("node", i),
			Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			},
			Pod: &v1alpha1.PodReference{Name: long("worker", i), UID: uid(i)},
		})
		reservation.Status.Slots = append(reservation.Status.Slots, v1alpha1.SlotStatus{
			Name: long("worker", i), NodeName: long("node", i), NodeUID: uid(i), State: v1alpha1.SlotConsumed,
			Pods: []v1alpha1.PodReference{{Name: long("worker", i), UID: uid(i)}},
		})
	}
	client := s.typed.GlobalreserveV1alpha1().Reservations(namespace)
	_, err := client.Create(t.Context(), reservation, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, s.setStatus(t, name, reservation.Status))
	require.NoError(t, s.patch(t, name, `{"spec": {"ttl": "1h"}}`), "rules are affordable at this size")

	content, err := s.typed.GlobalreserveV1alpha1().RESTClient().Get().
		Namespace(namespace).Resource("reservations").Name(name).DoRaw(t.Context())
	require.NoError(t, err)
	t.Logf("%d slots take %d of %d bytes", v1alpha1.MaxSlots, len(content), etcdLimit)
	assert.Less(t, len(content), etcdLimit)
}

// What kubectl prints is the table the server makes, with the names in capitals.
func (s *suite) testColumns(t *testing.T) {
	require.NoError(t, s.create(t, "columns", one(`schedulerName: batch`)))
	require.NoError(t, s.setStatus(t, "columns", availableStatus()))
	content, err := s.typed.GlobalreserveV1alpha1().RESTClient().Get().
		Namespace(namespace).Resource("reservations").Name("columns").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(content, &table))

	var narrow, wide []string
	for _, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			narrow = append(narrow, strings.ToUpper(column.Name))
		} else {
			wide = append(wide, strings.ToUpper(column.Name))
		}
	}
	assert.Equal(t, []string{"NAME", "NODENAME", "STATUS", "CONSUMED", "EXPIRES", "AGE"}, narrow)
	assert.Equal(t, []string{"REASON", "SCHEDULER"}, wide)
	require.Len(t, table.Rows, 1)
	cells := table.Rows[0].Cells
	assert.Equal(t, []any{"columns", "node-7 +2", "Available", "2/3", "2030-01-02T03:04:05Z"}, cells[:5])
	assert.Regexp(t, `^\d+s$`, cells[5])
	assert.Equal(t, []any{"Reserved", "batch"}, cells[6:])
}

func (s *suite) testInformer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	factory := externalversions.NewSharedInformerFactoryWithOptions(s.typed, 0, externalversions.WithNamespace(namespace))
	defer factory.Shutdown()
	defer cancel()
	reservations := factory.Globalreserve().V1alpha1().Reservations()
	events := make(chan string, 1000)
	_, err := reservations.Informer().AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			meta, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			return err == nil && meta == namespace+"/informed"
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { events <- "added" },
			UpdateFunc: func(_, object any) { events <- "updated " + string(object.(*v1alpha1.Reservation).Status.Phase) },
			DeleteFunc: func(any) { events <- "deleted" },
		},
	})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	require.True(t, cache.WaitForCacheSync(ctx.Done(), reservations.Informer().HasSynced))
	requireEvent := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			require.Equal(t, want, got)
		case <-time.After(serverWait):
			require.Fail(t, "the informer did not tell", want)
		}
	}

	require.NoError(t, s.create(t, "informed", one(`ttl: 10m`)))
	requireEvent("added")
	require.NoError(t, s.setStatus(t, "informed", v1alpha1.ReservationStatus{Phase: v1alpha1.ReservationPending}))
	requireEvent("updated Pending")
	got, err := reservations.Lister().Reservations(namespace).Get("informed")
	require.NoError(t, err)
	assert.Equal(t, 10*time.Minute, got.Spec.TTL.Duration)
	elsewhere, err := reservations.Lister().Reservations("kube-system").List(labels.Everything())
	require.NoError(t, err)
	assert.Empty(t, elsewhere)
	client := s.typed.GlobalreserveV1alpha1().Reservations(namespace)
	require.NoError(t, client.Delete(t.Context(), "informed", metav1.DeleteOptions{}))
	requireEvent("deleted")
}
