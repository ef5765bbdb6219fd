package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

var onePod = resource.MustParse("1")

// maxPending is how many pods without a node there are at most: more would only wait for each other.
const maxPending = 30

// maxNames is how many names pods have: a new pod often has the name of one that has just gone.
const maxNames = 60

// action is something that happens in a cluster, more often the more it weighs.
type action struct {
	weight int
	do     func(c *Cluster, ctx context.Context)
}

// name is that of the method.
func (a *action) name() string {
	name := runtime.FuncForPC(reflect.ValueOf(a.do).Pointer()).Name()
	return name[strings.LastIndexByte(name, '.')+1:]
}

func actionNames() (names []string) {
	for i := range actions {
		names = append(names, actions[i].name())
	}
	return names
}

var actions = []action{
	{80, (*Cluster).createPods},
	{80, (*Cluster).finishPods},
	{80, (*Cluster).deletePods},
	{10, (*Cluster).replacePod},
	{10, (*Cluster).createPodOnNode},
	{30, (*Cluster).resizePods},
	{15, (*Cluster).createGang},
	{20, (*Cluster).createReservation},
	{6, (*Cluster).deleteReservation},
	{15, (*Cluster).createCrew},
	{5, (*Cluster).changePodGroup},
	{1, (*Cluster).changeDefinition},
	{10, (*Cluster).changeClaims},
	{3, (*Cluster).changeDevices},
	{2, (*Cluster).editAnnotations},
	{10, (*Cluster).collectGarbage},
	{20, (*Cluster).changeResourceClaims},
	{3, (*Cluster).changePool},
	{2, (*Cluster).resizeNode},
	{3, (*Cluster).cordonNode},
	{1, (*Cluster).removeNode},
	{5, (*Cluster).restoreNodes},
	{2, (*Cluster).changeTrouble},
	{2, (*Cluster).disturbServer},
	{5, (*Cluster).replaceLeader},
	{1, (*Cluster).cutPower},
	{6, (*Cluster).startServers},
	{1, (*Cluster).restartAPIServer},
	{2, (*Cluster).lagAPIServer},
	{1, (*Cluster).compact},
	{1, (*Cluster).changeQuota},
	{2, (*Cluster).changePolicy},
}

// drive has all of it happen, and looks whether the promises are kept.
func (c *Cluster) drive(r *Result) {
	ctx, cancel := context.WithCancel(context.Background())
	var schedulers sync.WaitGroup
	for i := range c.options.Schedulers {
		s, err := c.newScheduler(i)
		if err != nil {
			c.fail("%v", err)
			break
		}
		schedulers.Go(func() { s.run(ctx) })
	}
	if gangs, err := c.newGangScheduler(); err == nil {
		schedulers.Go(func() { gangs.run(ctx) })
	} else {
		c.fail("%v", err)
	}
	for i := range allocators {
		a, err := c.newAllocator(i)
		if err != nil {
			c.fail("%v", err)
			break
		}
		schedulers.Go(func() { a.run(ctx) })
	}
	all := 0
	for _, a := range actions {
		all += a.weight
	}
	if !c.options.Calm && c.random.IntN(2) == 0 {
		c.changeTrouble(ctx)
	}
	for c.steps.Load() < int64(c.options.Steps) && c.finding() == nil {
		drawn := c.random.IntN(all)
		for _, a := range actions {
			if drawn -= a.weight; drawn < 0 {
				if !slices.Contains(c.options.Without, a.name()) {
					a.do(c, ctx)
				}
				break
			}
		}
		c.steps.Add(1)
		time.Sleep(milliseconds(c.random, 200*c.pace()))
	}
	r.Steps = int(c.steps.Load())
	if c.finding() == nil {
		c.calm(ctx)
	}
	cancel()
	schedulers.Wait()
	if c.finding() == nil {
		c.empty(context.Background())
	}
}

// newScheduler returns a scheduler. The first one knows nothing of the servers.
func (c *Cluster) newScheduler(i int) (*scheduler, error) {
	s := &scheduler{
		cluster: c, name: fmt.Sprintf("scheduler-%d", i),
		random: rand.New(rand.NewPCG(c.options.Seed, uint64(200+i))),
	}
	var err error
	if i == 0 {
		s.alone, err = c.client(s.name)
	}
	return s, err
}

// quietTime is how long the cluster has to come to rest when nothing happens to it any more. For ten minutes a server
// may keep what is free for a pod of a higher priority that another server has nominated, and that fits no more.
const quietTime = 15 * time.Minute

// quietStep is how long it is left alone before somebody looks again.
const quietStep = 10 * time.Second

// keptTime is after which nothing is kept any more of what was reserved before.
const keptTime = maxTTL*time.Second + 20*time.Second

// calm ends all trouble, and looks at what there is after a while.
func (c *Cluster) calm(ctx context.Context) {
	if c.random.IntN(2) == 0 {
		c.removeNode(ctx) // for good
	}
	c.deletePods(ctx)
	if c.random.IntN(2) == 0 {
		c.liftLimits(ctx)
	}
	for _, kind := range []*groupKind{volcanoGroups, coschedulingGroups} {
		c.must(c.define(ctx, kind, time.Now()), "creating a definition")
	}
	c.createCrew(ctx) // for what is free then
	c.note("driver", "nothing happens any more")
	c.quiet.Store(true)
	c.setTrouble(0)
	c.kube.at(1).Lag(0)
	for _, s := range c.servers {
		if s.alive() {
			s.running.gate.open()
			s.running.link.cut.open()
			s.running.host.cutOff(false)
			s.running.jump.Store(0)
		}
	}
	if c.random.IntN(2) == 0 {
		c.cutPower(ctx)
	}
	c.startServers(ctx)
	c.must(c.publishAll(ctx), "publishing devices")
	until := time.Now().Add(quietTime)
	waits := ""
	for time.Now().Before(until) && c.finding() == nil {
		time.Sleep(quietStep)
		c.startServers(ctx)
		if waits = c.judge.waits(); c.leader() == nil {
			waits = "no server decides"
		}
		if waits == "" && time.Until(until) < quietTime-keptTime {
			break
		}
	}
	if c.finding() != nil {
		return
	}
	if waits != "" {
		c.judge.describe()
		c.fail("%s after %s in which nothing happened", waits, quietTime)
	}
	if pod := c.judge.edited(); pod != "" {
		c.fail("pod %s does not say which devices it was given", pod)
	}
	c.compare(ctx)
}

// compare compares the ledgers of all servers with the cluster.
func (c *Cluster) compare(ctx context.Context) {
	for _, s := range c.servers {
		if !s.alive() {
			continue
		}
		var answer reserver.DiffAnswer
		if err := s.running.ask(ctx, admin, "GET", "/debug/diff", nil, &answer); err != nil {
			c.fail("%s cannot be compared with the cluster: %v", s.name, err)
		}
		for _, d := range answer.Differences {
			c.fail("the ledger of %s differs: %s of %s: the ledger has %s, the cluster %s", s.name, d.Kind, d.Object,
				d.Ledger, d.Cluster)
		}
		if len(answer.Compared) == 0 {
			c.fail("%s compared nothing: %s", s.name, answer.Undecided)
		}
	}
}

// admin is the caller who may see everything.
const admin = "admin"

func (c *Cluster) createNamespace(ctx context.Context, name string) error {
	_, err := c.admin.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	return err
}

// must notes what should not fail: nothing happens to what the driver does.
func (c *Cluster) must(err error, what string) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		c.fail("%s: %v", what, err)
	}
}

// highPriority is the priority of every second pod.
const highPriority = 10

// most is how much of something happens at once, at most: what comes alone contends with nothing.
const most = 4

func (c *Cluster) createPods(ctx context.Context) {
	pending := c.choose(func(p *v1.Pod) bool { return p.Spec.NodeName == "" })
	for range min(1+c.random.IntN(most), maxPending-len(pending)) {
		pod := c.newPod()
		c.wantDevices(pod)
		c.wantCapacityKept(pod)
		c.createPod(ctx, pod)
	}
}

// wantCapacityKept has some pods ask to have their capacity kept when they are deleted, for one that says the same.
func (c *Cluster) wantCapacityKept(pod *v1.Pod) {
	if index := c.random.IntN(4 * maxApps); index < maxApps {
		pod.Annotations[v1alpha1.ReservationAnnotation] = "true"
		pod.Annotations[v1alpha1.ReservationIndexAnnotation] = fmt.Sprintf("index-%d", index)
		pod.Annotations[v1alpha1.ReservationTTLAnnotation] = fmt.Sprint(5 + c.random.IntN(maxTTL-5))
	}
}

// newPod returns a pod that nobody has created yet.
func (c *Cluster) newPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("pod-%d", c.random.IntN(maxNames)),
			Labels: map[string]string{appLabel: c.appName()}, Annotations: map[string]string{},
		},
		Spec: v1.PodSpec{
			SchedulerName: fmt.Sprintf("scheduler-%d", c.random.IntN(c.options.Schedulers)),
			Priority:      ptr.To(int32(c.random.IntN(2) * highPriority)),
			Containers: []v1.Container{{
				Name: "main", Image: "main", Resources: v1.ResourceRequirements{Requests: c.newRequests()},
			}},
		},
	}
}

func (c *Cluster) newRequests() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(100*(1+c.random.IntN(10))), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(64<<20*(1+c.random.IntN(15))), resource.BinarySI),
	}
}

func (c *Cluster) createPod(ctx context.Context, pod *v1.Pod) {
	_, err := c.admin.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return
	}
	c.must(err, "creating a pod")
	c.note("user", "creates %s for %s: %s %v", pod.Name, pod.Spec.SchedulerName, text(requestsOf(pod)), pod.Annotations)
}

// createPodOnNode creates a pod that names its node itself, as a DaemonSet once did: the API server asks a server.
func (c *Cluster) createPodOnNode(ctx context.Context) {
	pod := c.newPod()
	pod.Spec.NodeName = c.nodeName()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := c.admin.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	c.note("user", "creates %s on %s: %v", pod.Name, pod.Spec.NodeName, err)
}

// resizePods has pods ask for more or less, where they run or, less often, before: the API server asks a server.
func (c *Cluster) resizePods(ctx context.Context) {
	any := c.random.IntN(4) == 0
	list := c.choose(func(p *v1.Pod) bool {
		return !ended(p) && p.DeletionTimestamp == nil && (any || p.Spec.NodeName != "")
	})
	if len(list) == 0 {
		return
	}
	pod := list[c.random.IntN(len(list))].DeepCopy()
	pod.Spec.Containers[0].Resources.Requests = c.newRequests()
	c.judge.resizes(pod.UID)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := c.admin.CoreV1().Pods(pod.Namespace).UpdateResize(ctx, pod.Name, pod, metav1.UpdateOptions{})
	c.note("user", "resizes %s: %v", pod.Name, err)
}

func (c *Cluster) nodeName() string { return fmt.Sprintf("node-%d", c.random.IntN(c.options.Nodes)) }

// choose returns the pods, in a fixed order, that are as they should.
func (c *Cluster) choose(which func(*v1.Pod) bool) []*v1.Pod {
	c.judge.mu.Lock()
	defer c.judge.mu.Unlock()
	var list []*v1.Pod
	for _, pod := range c.judge.pods {
		if which(pod) {
			list = append(list, pod)
		}
	}
	sortByName(list)
	return list
}

// finishPods says what kubelets say of the pods that they run. What has ended does not run again.
func (c *Cluster) finishPods(ctx context.Context) {
	for range 1 + c.random.IntN(most) {
		list := c.choose(func(p *v1.Pod) bool { return p.Spec.NodeName != "" && !ended(p) })
		if len(list) == 0 {
			return
		}
		pod := list[c.random.IntN(len(list))].DeepCopy()
		pod.Status.Phase = []v1.PodPhase{v1.PodSucceeded, v1.PodFailed, v1.PodRunning}[c.random.IntN(3)]
		_, err := c.admin.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		c.must(err, "ending a pod")
		c.note("kubelet", "says that %s is %s", pod.Name, pod.Status.Phase)
	}
}

// ended reports whether a pod uses nothing any more.
func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// deletePods deletes pods on nodes as users do, and then as their kubelets.
func (c *Cluster) deletePods(ctx context.Context) {
	list := c.choose(func(p *v1.Pod) bool { return p.Spec.NodeName != "" })
	for range min(1+c.random.IntN(2*most), len(list)) {
		pod := list[c.random.IntN(len(list))]
		o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
		if pod.DeletionTimestamp != nil || c.random.IntN(2) == 0 {
			o.GracePeriodSeconds = ptr.To(int64(0))
		}
		c.must(c.admin.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, o), "deleting a pod")
		c.note("user", "deletes %s", pod.Name)
	}
}

// replacePod deletes a pod that has no node yet; often another one has its name at once, as with a StatefulSet.
func (c *Cluster) replacePod(ctx context.Context) {
	list := c.choose(func(p *v1.Pod) bool { return p.Spec.NodeName == "" })
	if len(list) == 0 {
		return
	}
	pod := list[c.random.IntN(len(list))]
	c.must(c.admin.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}), "deleting a pod")
	c.note("user", "deletes %s, which is without a node", pod.Name)
	if c.random.IntN(4) > 0 {
		next := c.newPod()
		next.Name = pod.Name
		c.createPod(ctx, next)
	}
}

func (c *Cluster) addNode(ctx context.Context, name string) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setAllocatable(node, c.random)
	_, err := c.admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	c.must(err, "adding a node")
	c.note("node", "%s comes with %s", name, text(node.Status.Allocatable))
}

func setAllocatable(node *v1.Node, random *rand.Rand) {
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(2000+500*random.IntN(5)), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(2+random.IntN(3))<<30, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(5+random.IntN(10)), resource.DecimalSI),
		gpu:               *resource.NewQuantity([]int64{maxDevices, maxDevices, 2, 0}[random.IntN(4)], resource.DecimalSI),
	}
	node.Status.Capacity = node.Status.Allocatable
}

// editNode has a node edited. Whoever else edits it meanwhile is first.
func (c *Cluster) editNode(ctx context.Context, edit func(*v1.Node)) {
	name := c.nodeName()
	node, err := c.admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		c.must(err, "reading a node")
		return
	}
	edit(node)
	_, err = c.admin.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	if err == nil {
		_, err = c.admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	}
	c.must(err, "editing a node")
	c.note("node", "%s has %s; cordoned: %t", name, text(node.Status.Allocatable), node.Spec.Unschedulable)
}

func (c *Cluster) resizeNode(ctx context.Context) {
	c.editNode(ctx, func(node *v1.Node) { setAllocatable(node, c.random) })
}

func (c *Cluster) cordonNode(ctx context.Context) {
	c.editNode(ctx, func(node *v1.Node) { node.Spec.Unschedulable = c.random.IntN(3) == 0 })
}

// removeNode has a node go.
func (c *Cluster) removeNode(ctx context.Context) {
	name := c.nodeName()
	c.must(c.admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}), "deleting a node")
	c.note("node", "%s goes", name)
}

// restoreNodes has the nodes come back that are gone.
func (c *Cluster) restoreNodes(ctx context.Context) {
	for i := range c.options.Nodes {
		name := fmt.Sprintf("node-%d", i)
		if _, err := c.admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			c.addNode(ctx, name)
		}
	}
}
