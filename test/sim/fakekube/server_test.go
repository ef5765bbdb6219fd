package fakekube

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdclient "go.etcd.io/etcd/client/v3/kubernetes"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// world is a server with a namespace.
type world struct {
	*testing.T
	etcd    *Etcd
	core    kubernetes.Interface
	objects dynamic.Interface
}

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, etcd: NewEtcd()}
		s, err := New(w.etcd, nil, nil)
		require.NoError(t, err)
		defer time.Sleep(10 * time.Second) // what waits for a newer list gives up by then
		defer s.Close()
		config := s.Config("tester")
		config.ContentType = "application/vnd.kubernetes.protobuf"
		w.core, err = kubernetes.NewForConfig(config)
		require.NoError(t, err)
		w.objects, err = dynamic.NewForConfig(s.Config("tester"))
		require.NoError(t, err)
		for _, name := range []string{"default", "kube-system"} {
			_, err = w.core.CoreV1().Namespaces().Create(t.Context(),
				&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		test(t, w)
	})
}

func (w *world) createPod(name string) *v1.Pod {
	pod, err := w.core.CoreV1().Pods("default").Create(w.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "main"}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	return pod
}

func (w *world) bind(pod string, uid *v1.Pod, annotations map[string]string) error {
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: "node"},
	}
	if uid != nil {
		binding.UID, binding.ResourceVersion = uid.UID, uid.ResourceVersion
	}
	return w.core.CoreV1().Pods("default").Bind(w.Context(), binding, metav1.CreateOptions{})
}

// apply creates the objects of a file under manifests/.
func (w *world) apply(file string, kinds map[string]string) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", file))
	require.NoError(w, err)
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), len(text))
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err == io.EOF {
			return
		}
		gv, err := schema.ParseGroupVersion(object.GetAPIVersion())
		require.NoError(w, err)
		_, err = w.objects.Resource(gv.WithResource(kinds[object.GetKind()])).Create(w.Context(), object,
			metav1.CreateOptions{})
		require.NoError(w, err)
	}
}

func TestBinding(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pod := w.createPod("web")
		assert.Equal(t, v1.DefaultSchedulerName, pod.Spec.SchedulerName, "it has its defaults")
		other := pod.DeepCopy()
		other.UID = "another"
		assert.True(t, apierrors.IsConflict(w.bind("web", other, nil)))
		older := pod.DeepCopy()
		older.ResourceVersion = "1"
		assert.True(t, apierrors.IsConflict(w.bind("web", older, nil)))
		require.NoError(t, w.bind("web", pod, map[string]string{"why": "because"}))
		assert.True(t, apierrors.IsConflict(w.bind("web", nil, nil)), "it is bound")
		assert.True(t, apierrors.IsNotFound(w.bind("nobody", nil, nil)))
		bound, err := w.core.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "node", bound.Spec.NodeName)
		assert.Equal(t, "because", bound.Annotations["why"])
		assert.Equal(t, metav1.ConditionTrue, metav1.ConditionStatus(bound.Status.Conditions[0].Status))
	})
}

func TestDryRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.createPod("web")
		binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Target: v1.ObjectReference{Name: "node"}}
		require.NoError(t, w.core.CoreV1().Pods("default").Bind(t.Context(), binding,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
		require.NoError(t, w.bind("web", nil, nil), "it is not bound yet")
	})
}

// A pod with a node is deleted by a user, and then by its kubelet.
func TestDeletion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pod := w.createPod("web")
		watcher, err := w.core.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: pod.ResourceVersion})
		require.NoError(t, err)
		defer watcher.Stop()
		require.NoError(t, w.bind("web", nil, nil))
		synctest.Wait() // the API server may take an older pod from its cache, and one without a node goes at once
		pods := w.core.CoreV1().Pods("default")
		require.NoError(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{}))
		require.NoError(t, pods.Delete(t.Context(), "web", *metav1.NewDeleteOptions(0)))
		var types []watch.EventType
		for !slices.Contains(types, watch.Deleted) {
			types = append(types, (<-watcher.ResultChan()).Type)
		}
		assert.Equal(t, []watch.EventType{watch.Modified, watch.Modified, watch.Modified, watch.Deleted}, types)
	})
}

// What is older than the latest compaction cannot be read, or watched, any more.
func TestCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		etcd := NewEtcd()
		client := etcd.client(ctx, &atomic.Int64{})
		first, err := client.Kubernetes.OptimisticPut(ctx, "/a", []byte("1"), 0, etcdclient.PutOptions{})
		require.NoError(t, err)
		_, err = client.Kubernetes.OptimisticPut(ctx, "/a", []byte("2"), first.Revision, etcdclient.PutOptions{})
		require.NoError(t, err)
		old, err := client.Kubernetes.Get(ctx, "/a", etcdclient.GetOptions{Revision: first.Revision})
		require.NoError(t, err)
		assert.Equal(t, "1", string(old.KV.Value))
		etcd.Compact()
		_, err = client.Kubernetes.Get(ctx, "/a", etcdclient.GetOptions{Revision: first.Revision})
		assert.ErrorIs(t, err, rpctypes.ErrCompacted)
		said := <-client.Watch(ctx, "/a", clientv3.WithRev(first.Revision))
		assert.ErrorIs(t, said.Err(), rpctypes.ErrCompacted)
		conflict, err := client.Kubernetes.OptimisticDelete(ctx, "/a", first.Revision,
			etcdclient.DeleteOptions{GetOnFailure: true})
		require.NoError(t, err)
		assert.False(t, conflict.Succeeded)
		assert.Equal(t, "2", string(conflict.KV.Value))
	})
}

// Events go when their time is over.
func TestEventsExpire(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		events := w.core.EventsV1().Events("default")
		_, err := events.Create(t.Context(), &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}, EventTime: metav1.NowMicro(), Reason: "Tested", Action: "Test",
			Type: v1.EventTypeNormal, ReportingController: "test", ReportingInstance: "test",
			Regarding: v1.ObjectReference{Namespace: "default", Name: "web"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(eventTTL + 2*time.Minute)
		w.createPod("web") // a write is when etcd looks
		_, err = events.Get(t.Context(), "one", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err))
	})
}

func TestServerSideApply(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := w.core.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		for value, owners := range map[string]int{"a": 1, "b": 1} {
			node := applycorev1.Node("node").WithAnnotations(map[string]string{"kept": value})
			applied, err := w.core.CoreV1().Nodes().Apply(t.Context(), node, metav1.ApplyOptions{FieldManager: "me"})
			require.NoError(t, err)
			assert.Equal(t, value, applied.Annotations["kept"])
			assert.Len(t, applied.ManagedFields, owners)
		}
	})
}

// The files that people deploy have the API server refuse what was decided in an earlier term.
func TestFence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.apply("crd/globalreserve.io_ledgerterms.yaml", map[string]string{
			"CustomResourceDefinition": "customresourcedefinitions",
		})
		w.apply("base/fence.yaml", map[string]string{
			"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
			"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
		})
		time.Sleep(2 * time.Second)
		terms := w.objects.Resource(schema.GroupVersionResource{
			Group: "globalreserve.io", Version: "v1alpha1", Resource: "ledgerterms",
		})
		term := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "globalreserve.io/v1alpha1", "kind": "LedgerTerm",
			"metadata": map[string]any{"name": "globalreserve"}, "spec": map[string]any{"term": int64(5), "leader": "a"},
		}}
		_, err := terms.Create(t.Context(), term, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Second)
		w.createPod("web")
		assert.ErrorContains(t, w.bind("web", nil, map[string]string{"globalreserve.io/term": "4"}),
			"it was decided in term 4, which is over: the cluster is in term 5")
		assert.NoError(t, w.bind("web", nil, map[string]string{"globalreserve.io/term": "5"}))
	})
}
