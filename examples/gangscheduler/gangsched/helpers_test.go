package gangsched

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/background"
)

const testScheduler = "gang-scheduler"

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

// cluster is a fake API server with a scheduler at work, in a bubble of synctest.
type cluster struct {
	t         *testing.T
	client    *fake.Clientset
	scheduler *Scheduler
	pods      []*corev1.Pod
}

func newCluster(t *testing.T, nodes []*corev1.Node, pods ...*corev1.Pod) *cluster {
	t.Helper()
	var objects []runtime.Object
	for _, node := range nodes {
		objects = append(objects, node)
	}
	c := &cluster{t: t, client: fake.NewClientset(objects...), pods: pods}
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		return true, binding, c.bind(binding.Namespace, binding.Name, binding.UID, binding.Target.Name)
	})
	return c
}

// run starts a scheduler, creates the pods once it watches, and returns when it has done what there is to do. The
// fake API server sends no events from before. It ends with the test.
func (c *cluster) run(server GlobalReserve) {
	c.t.Helper()
	log, _ := logrustest.NewNullLogger()
	var err error
	c.scheduler, err = New(Options{Client: c.client, SchedulerName: testScheduler, Log: log, GlobalReserve: server})
	require.NoError(c.t, err)
	background.Run(c.t, c.scheduler.Run)
	<-c.scheduler.Ready()
	synctest.Wait()
	c.create(c.pods...)
}

// create creates pods and returns when the scheduler has done what there is to do.
func (c *cluster) create(pods ...*corev1.Pod) {
	for _, pod := range pods {
		_, err := c.client.CoreV1().Pods(pod.Namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
	c.settle()
}

// settle waits until the scheduler has tried again what failed, and looked again for capacity.
func (c *cluster) settle() {
	<-time.After(3 * longestBackOff)
	synctest.Wait()
}

// bind does with a Binding what a real API server does.
func (c *cluster) bind(namespace, name string, uid types.UID, node string) error {
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

// server is a GlobalReserve that does what the test says and remembers what it was asked.
type server struct {
	// onReserve and onBind answer the try-th request. No onReserve grants.
	onReserve func(try int, request *reserver.Request) *reserver.Answer
	onBind    func(try int, request *extenderv1.ExtenderBindingArgs) error

	mu         sync.Mutex // guards what follows; who has waited for the scheduler may read it
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

func names(pods []*corev1.Pod) []string {
	list := make([]string, 0, len(pods))
	for _, pod := range pods {
		list = append(list, pod.Name)
	}
	return list
}
