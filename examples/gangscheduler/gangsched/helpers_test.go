package gangsched

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	testScheduler = "gang-scheduler"
	eventually    = time.Minute
	tick          = 5 * time.Millisecond
	never         = 300 * time.Millisecond
)

func testNode(name, cpu string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Gi"),
			corev1.ResourcePods: resource.MustParse("110"),
		}},
	}
}

func testPod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			SchedulerName: testScheduler,
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		},
	}
}

// testGang makes the pods NAME-0, NAME-1 ... of a gang.
func testGang(name string, size int, cpu string) []*corev1.Pod {
	pods := make([]*corev1.Pod, size)
	for i := range pods {
		pods[i] = testPod(name+"-"+strconv.Itoa(i), cpu)
		Mark(pods[i], name, size)
	}
	return pods
}

func boundTo(pod *corev1.Pod, node string) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

// cluster is a fake API server with a scheduler at work.
type cluster struct {
	t         *testing.T
	client    *fake.Clientset
	scheduler *Scheduler
	// watching is over when pods and nodes are watched: the fake API server sends no events of before. The scheduler
	// begins as soon as it has read them, so whatever changes an object waits for it.
	watching sync.WaitGroup
}

func newCluster(t *testing.T, nodes []*corev1.Node, pods ...*corev1.Pod) *cluster {
	t.Helper()
	var objects []runtime.Object
	for _, node := range nodes {
		objects = append(objects, node)
	}
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	c := &cluster{t: t, client: fake.NewClientset(objects...)}
	c.bindReactor()
	return c
}

// run starts a scheduler and returns when it watches the cluster. It ends with the test.
func (c *cluster) run(server GlobalReserve) {
	c.t.Helper()
	c.watchReactor()
	log, _ := logrustest.NewNullLogger()
	var err error
	c.scheduler, err = New(Options{
		Client: c.client, SchedulerName: testScheduler, Log: log, Recheck: 50 * time.Millisecond, GlobalReserve: server,
	})
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.scheduler.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		require.NoError(c.t, <-ended)
	})
	<-c.scheduler.Ready()
	c.watching.Wait()
}

func (c *cluster) watchReactor() {
	c.watching.Add(2)
	once := map[string]*sync.Once{"pods": {}, "nodes": {}}
	c.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		stream, err := c.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		if o := once[action.GetResource().Resource]; o != nil {
			o.Do(c.watching.Done)
		}
		return true, stream, err
	})
}

// bindReactor makes the fake API server do with a Binding what the real one does.
func (c *cluster) bindReactor() {
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		return true, binding, c.bind(binding.Namespace, binding.Name, binding.UID, binding.Target.Name)
	})
}

func (c *cluster) bind(namespace, name string, uid types.UID, node string) error {
	c.watching.Wait()
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	object, err := c.client.Tracker().Get(gvr, namespace, name)
	if err != nil {
		return err
	}
	pod := object.(*corev1.Pod).DeepCopy()
	assert.Equal(c.t, pod.UID, uid, "the UID is the precondition of a bind")
	assert.Empty(c.t, pod.Spec.NodeName, "a pod is bound once")
	return c.client.Tracker().Update(gvr, boundTo(pod, node), namespace)
}

// bindAsked does what a server's /bind does.
func (c *cluster) bindAsked(_ int, r *extenderv1.ExtenderBindingArgs) error {
	return c.bind(r.PodNamespace, r.PodName, r.PodUID, r.Node)
}

func (c *cluster) create(pods ...*corev1.Pod) {
	for _, pod := range pods {
		_, err := c.client.CoreV1().Pods(pod.Namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
}

// bound returns the node of every pod that has one.
func (c *cluster) bound() map[string]string {
	list, err := c.client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	require.NoError(c.t, err)
	nodes := map[string]string{}
	for i := range list.Items {
		if node := list.Items[i].Spec.NodeName; node != "" {
			nodes[list.Items[i].Name] = node
		}
	}
	return nodes
}

func (c *cluster) awaitBound(want map[string]string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return assert.ObjectsAreEqual(want, c.bound()) }, eventually, tick,
		"want %v", want)
}

// server is a GlobalReserve that does what the test says and remembers what it was asked.
type server struct {
	// onReserve and onBind answer the try-th request. No onReserve grants.
	onReserve func(try int, request *reserver.Request) *reserver.Answer
	onBind    func(try int, request *extenderv1.ExtenderBindingArgs) error

	mu         sync.Mutex // guards what follows
	reserves   []*reserver.Request
	unreserves []*reserver.Request
	binds      []*extenderv1.ExtenderBindingArgs
}

func (s *server) Reserve(_ context.Context, r *reserver.Request) (*reserver.Answer, error) {
	answer := &reserver.Answer{Revision: 1}
	if try := record(s, &s.reserves, r); s.onReserve != nil {
		answer = s.onReserve(try, r)
	}
	if answer.Error != "" {
		return answer, &reserver.RefusedError{Answer: answer}
	}
	return answer, nil
}

func (s *server) Unreserve(_ context.Context, r *reserver.Request) (*reserver.Answer, error) {
	record(s, &s.unreserves, r)
	return &reserver.Answer{Revision: 1}, nil
}

func (s *server) Bind(_ context.Context, args *extenderv1.ExtenderBindingArgs) error {
	return s.onBind(record(s, &s.binds, args), args)
}

func record[T any](s *server, calls *[]*T, request *T) (try int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*calls = append(*calls, request)
	return len(*calls)
}

// refusal is the answer to a gang of which pods have no capacity.
func refusal(rejections ...reserver.Rejection) *reserver.Answer {
	answer := &reserver.Answer{Error: "no capacity", Revision: 1, Rejections: rejections}
	for _, r := range rejections {
		answer.FailedPods = append(answer.FailedPods, r.Pod)
	}
	return answer
}

// asked returns every request so far.
func (s *server) asked() (reserves, unreserves []*reserver.Request, binds []*extenderv1.ExtenderBindingArgs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(reserves, s.reserves...), append(unreserves, s.unreserves...), append(binds, s.binds...)
}

func names(pods []*corev1.Pod) []string {
	list := make([]string, 0, len(pods))
	for _, pod := range pods {
		list = append(list, pod.Name)
	}
	return list
}
