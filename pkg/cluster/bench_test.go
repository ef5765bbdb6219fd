package cluster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/background"
)

// The size the cache is made for.
const (
	manyPods  = 150_000
	manyNodes = 5_000
)

// typicalPod is a pod as an API server has it, some 4 KB long.
func typicalPod(i int) *v1.Pod {
	container := func(name string) v1.Container {
		c := v1.Container{
			Name: name, Image: "registry.example/team/" + name + ":v1.2.3", ImagePullPolicy: v1.PullIfNotPresent,
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("128Mi"),
			}},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			VolumeMounts: []v1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}
		for e := range 8 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "some value of that setting"})
		}
		return c
	}
	name := fmt.Sprintf("worker-7c9f8d6b5-%06d", i)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%50), Name: name,
			UID: types.UID(fmt.Sprintf("4f1c2d3e-0000-4000-8000-%012d", i)), ResourceVersion: strconv.Itoa(1000 + i),
			Labels:      map[string]string{"app": "worker", "pod-template-hash": "7c9f8d6b5", "tier": "backend"},
			Annotations: map[string]string{"example.com/config-hash": strings.Repeat("0123456789abcdef", 8)},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` + strings.Repeat(`"f:labels":{".":{},"f:app":{}},`, 30) + `"f:x":{}}}`),
			}},
		},
		Spec: v1.PodSpec{
			SchedulerName: "default-scheduler", NodeName: fmt.Sprintf("node-%05d", i%manyNodes), ServiceAccountName: "default",
			Containers: []v1.Container{container("main"), container("proxy")},
			Tolerations: []v1.Toleration{
				{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
				{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
			},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.2.3"},
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{
			Name: c.Name, Ready: true, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("0123456789abcdef", 4),
		})
	}
	return pod
}

func typicalNode(i int) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%05d", i), UID: types.UID(fmt.Sprintf("node-uid-%d", i)), ResourceVersion: strconv.Itoa(1 + i),
			Labels: map[string]string{v1.LabelHostname: fmt.Sprintf("node-%05d", i), v1.LabelTopologyZone: "zone-a"},
		},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("128Gi"),
			v1.ResourceEphemeralStorage: resource.MustParse("500Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
	}
	for k := range 50 {
		node.Status.Images = append(node.Status.Images, v1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example/image-%d@sha256:%s", k, strings.Repeat("0123456789abcdef", 4))}, SizeBytes: 1 << 28,
		})
	}
	return node
}

// filled is a cache that holds the cluster it is made for.
func filled() *Cache {
	c := newCache()
	for i := range manyNodes {
		c.observeNode(newNodeRecord(c.table, typicalNode(i)))
	}
	for i := range manyPods {
		c.observePod(Compact(c.table, typicalPod(i)))
	}
	c.podsSynced.Store(true)
	c.nodesSynced.Store(true)
	return c
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // what has finalizers goes the second time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkBytesPerPod tells what a pod costs in memory, its claim in the
// ledger included. Pods are decoded from protobuf, as from the API server, so
// that strings have the memory they have there.
func BenchmarkBytesPerPod(b *testing.B) {
	for b.Loop() {
		before := heapInUse()
		c := newCache()
		for i := range manyPods {
			c.observePod(Compact(c.table, decoded(typicalPod(i))))
		}
		b.ReportMetric(float64(heapInUse()-before)/manyPods, "B/pod")
		runtime.KeepAlive(c)
	}
}

func decoded(pod *v1.Pod) *v1.Pod {
	data, err := pod.Marshal()
	if err != nil {
		panic(err)
	}
	var fresh v1.Pod
	if err := fresh.Unmarshal(data); err != nil {
		panic(err)
	}
	return &fresh
}

// BenchmarkLook is one comparison of the ledger with the cache.
func BenchmarkLook(b *testing.B) {
	c := NewComparer(filled(), fake.NewClientset(), ComparerOptions{})
	b.ReportAllocs()
	b.ResetTimer()
	start := cpuTime(b)
	for b.Loop() {
		found, err := c.find(b.Context(), false)
		if err != nil || len(found) > 0 {
			b.Fatalf("found %v, %v", found, err)
		}
	}
	b.ReportMetric((cpuTime(b)-start).Seconds()*1e3/float64(b.N), "cpu-ms/op")
}

// BenchmarkPodUpdate is one status update of a bound pod, of which every pod
// has several.
func BenchmarkPodUpdate(b *testing.B) {
	c := filled()
	sink := c.podSink()
	pod := typicalPod(7)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if err := sink.Update(pod); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart starts the cache from a server that streams the whole cluster
// in protobuf over HTTP, and reports how long it takes, what is held then and the
// most memory the process ever had.
func BenchmarkStart(b *testing.B) {
	server := httptest.NewServer(streamer())
	defer server.Close()
	for b.Loop() {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
		require.NoError(b, err)
		c := New(client, ledger.New(ledger.Options{}).Observer, (&told{}).options())
		start, startCPU := time.Now(), cpuTime(b)
		stop := background.Run(b, c.Run)
		require.NoError(b, c.WaitForSync(b.Context()))
		b.ReportMetric(time.Since(start).Seconds(), "s/ready")
		b.ReportMetric((cpuTime(b) - startCPU).Seconds(), "cpu-s/ready")
		stop()
		require.Len(b, c.nodes.all(), manyNodes)
		b.ReportMetric(float64(heapInUse())/(1<<20), "MiB-held")
		runtime.KeepAlive(c)
	}
	b.ReportMetric(peakMiB(b), "MiB-peak")
}

// streamer answers watches the way a kube-apiserver streams lists. Objects are
// encoded once and numbered by writing over digits, so that the time measured is
// the reader's.
func streamer() http.Handler {
	end := metav1.ObjectMeta{ResourceVersion: "999999", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	pod, node := typicalPod(0), typicalNode(0)
	pod.Name, pod.UID, pod.Spec.NodeName = "worker-7c9f8d6b5-@@@@@@", "4f1c2d3e-0000-4000-8000-000000@@@@@@", "node-#####"
	node.Name, node.UID = "node-#####", "node-uid-#####"
	pods := frame("ADDED", "Pod", pod)
	nodes := frame("ADDED", "Node", node)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") != "true" {
			http.Error(w, "this server only streams lists", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			for i := range manyNodes {
				_, _ = w.Write(numbered(nodes, 0, i))
			}
			_, _ = w.Write(frame("BOOKMARK", "Node", &v1.Node{ObjectMeta: end}))
		} else {
			for i := range manyPods {
				_, _ = w.Write(numbered(pods, i, i%manyNodes))
			}
			_, _ = w.Write(frame("BOOKMARK", "Pod", &v1.Pod{ObjectMeta: end}))
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
}

// frame is one event as it goes over the wire, behind its length.
func frame(event, kind string, object kruntime.Object) []byte {
	object.GetObjectKind().SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(kind))
	raw, err := kruntime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), object)
	if err != nil {
		panic(err)
	}
	data, err := kruntime.Encode(protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme),
		&metav1.WatchEvent{Type: event, Object: kruntime.RawExtension{Raw: raw}})
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// numbered puts the numbers of a pod and a node into a frame.
func numbered(frame []byte, pod, node int) []byte {
	frame = bytes.ReplaceAll(frame, []byte("@@@@@@"), fmt.Appendf(nil, "%06d", pod))
	return bytes.ReplaceAll(frame, []byte("#####"), fmt.Appendf(nil, "%05d", node))
}

// cpuTime is what this process has used; it says more than the time passed where
// others use the machine too.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMiB is the most memory this process ever had resident.
func peakMiB(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("the peak of memory is only known on Linux")
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			require.NoError(b, err)
			return kib / 1024
		}
	}
	return 0
}
