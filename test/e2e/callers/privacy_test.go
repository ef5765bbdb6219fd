//go:build e2e

package callers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	// secret is in each name that the other tenant has chosen.
	secret = "bsecret"
	theirs = secret + "-namespace"
	ours   = "tenant-a"
)

// tenantRights are all that the author of pods has.
const tenantRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author, namespace: tenant-a}
rules:
- {apiGroups: [""], resources: [pods, pods/resize], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [get, list]}
- {apiGroups: [globalreserve.io], resources: [reservations], verbs: [get, list, create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author, namespace: tenant-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-a}]
`

// texts are what a tenant has read, by where.
type texts map[string]string

// tenant is the author of pods, who reads all that he may.
type tenant struct {
	*cluster
	client  kubernetes.Interface
	objects versioned.Interface
	read    texts
}

// newTenant makes the tenant and gives him his rights.
func (c *cluster) newTenant() *tenant {
	c.T.Helper()
	for _, namespace := range []string{ours, theirs} {
		require.NoError(c.T, c.CreateNamespace(c.T.Context(), namespace))
	}
	require.NoError(c.T, c.ControlPlane.Apply(c.T.Context(), []byte(tenantRights), ours))
	config := c.RESTConfig(ours)
	config.ContentType = "application/json"
	a := &tenant{cluster: c, read: texts{}}
	var err error
	a.client, err = kubernetes.NewForConfig(config)
	require.NoError(c.T, err)
	a.objects, err = versioned.NewForConfig(config)
	require.NoError(c.T, err)
	return a
}

// create creates a pod as the tenant, and notes what is said of that.
func (a *tenant) create(name, scheduler, cpu string, changes ...func(*corev1.Pod)) error {
	pod := testbed.NewPod(name, scheduler, cpu, changes...)
	pod.Namespace = ours
	_, err := a.client.CoreV1().Pods(ours).Create(a.T.Context(), pod, metav1.CreateOptions{})
	a.note("create "+name, err)
	return err
}

func (a *tenant) note(where string, said any) { a.read[where] = fmt.Sprint(said) }

// readAll notes what the API server shows the tenant: pods, reservations, events.
func (a *tenant) readAll() {
	a.T.Helper()
	ctx, all := a.T.Context(), metav1.ListOptions{}
	pods, err := a.client.CoreV1().Pods(ours).List(ctx, all)
	require.NoError(a.T, err)
	reservations, err := a.objects.GlobalreserveV1alpha1().Reservations(ours).List(ctx, all)
	require.NoError(a.T, err)
	old, err := a.client.CoreV1().Events(ours).List(ctx, all)
	require.NoError(a.T, err)
	events, err := a.client.EventsV1().Events(ours).List(ctx, all)
	require.NoError(a.T, err)
	for where, object := range map[string]any{
		"pods": pods, "reservations": reservations, "old events": old,
		"events": events,
	} {
		content, err := json.Marshal(object)
		require.NoError(a.T, err)
		a.note(where, string(content))
	}
}

// fillNodes has the other tenant use and keep all but one CPU of each node, and a host port.
func (c *cluster) fillNodes() {
	c.T.Helper()
	b := c.Cluster
	b.Namespace = theirs
	for _, node := range c.nodes {
		b.CreatePod(secret+"-pod-"+node, secret+"-scheduler", "30", func(pod *corev1.Pod) {
			pod.Spec.NodeName = node
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		})
		name := secret + "-rsv-" + node
		b.CreateReservation(name,
			fmt.Sprintf(`{ttl: 1h, priority: 1000, slots: [{name: %s-slot, nodeName: %s, requests: {cpu: 30}}]}`, secret, node))
		b.AwaitReservation(name, v1alpha1.ReservationAvailable)
		pod := testbed.NewPod(secret+"-kept-"+node, secret+"-scheduler", "3")
		pod.Namespace = theirs
		answer := b.Reserve(&reserver.Request{SchedulerName: secret +
			"-scheduler", Pods: []*corev1.Pod{pod}, Nodes: []string{node}, TTLSeconds: 600})
		require.Empty(c.T, answer.Error)
	}
}

// startSchedulers starts the default scheduler behind the server, and one that has never heard of it: its pods are
// refused when they are bound.
func (c *cluster) startSchedulers() {
	c.T.Helper()
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	plain := c.Ledger
	defer func() { c.Ledger = plain }()
	c.Ledger.URL = ""
	c.StartKubeScheduler("naive-scheduler", "default-scheduler.yaml", "schedulerName: default-scheduler",
		"schedulerName: naive-scheduler",
		"leaderElect: true", "leaderElect: false")
}

// A tenant who shares full nodes with another one finds none of the other's names in anything that he may read: what he
// is refused by the API server, his pods and reservations, their conditions, and his namespace's events. What the
// server itself answers him is in the tests of pkg/http/rest.
func TestTenantSeesNoForeignNames(t *testing.T) {
	c := newCluster(t)
	ca, err := os.ReadFile(c.CAFile())
	require.NoError(t, err)
	webhook := &clusterload.Webhook{URL: c.servers[0].tls + "/admission", CA: ca}
	require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
	a := c.newTenant()
	c.fillNodes()
	c.startSchedulers()
	node := func(pod *corev1.Pod) { pod.Spec.NodeName = c.nodes[0] }

	// Admission.
	require.Error(t, a.create("a-placed", team, "2", node))
	require.Error(t, a.create("a-port", team, "100m", node, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	}))
	require.NoError(t, a.create("a-grows", team, "500m", node))
	_, err = a.client.CoreV1().Pods(ours).Patch(t.Context(), "a-grows", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"3"}}}]}}`), metav1.PatchOptions{},
		"resize")
	require.Error(t, err)
	a.note("resize", err)

	// Schedulers: refused by filter, and by the webhook when the pod is bound.
	require.NoError(t, a.create("a-filtered", "default-scheduler", "2"))
	require.NoError(t, a.create("a-bound", "naive-scheduler", "2"))
	// Objects.
	reservations := a.objects.GlobalreserveV1alpha1().Reservations(ours)
	slots := []v1alpha1.Slot{{Name: "s", NodeName: c.nodes[0], Requests: testbed.Requests("5")}}
	_, err = reservations.Create(t.Context(), &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: "a-waits"},
		Spec:       v1alpha1.ReservationSpec{Slots: slots},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	refused := []string{"not enough capacity left on the node", "too little cpu", "CapacityReserved"}
	c.Eventually(func(t *assert.CollectT) {
		a.readAll()
		assert.Contains(t, a.read["pods"], refused[0], "the condition of a-filtered")
		assert.Contains(t, a.read["events"], refused[0], "FailedScheduling of a-filtered")
		assert.Contains(t, a.read["pods"], refused[1], "the condition of a-bound")
		assert.Contains(t, a.read["events"], refused[1], "FailedScheduling of a-bound")
		assert.Contains(t, a.read["events"], refused[2])
		assert.Contains(t, a.read["reservations"], refused[1], "the condition of a-waits")
	})
	for where, said := range a.read {
		if at := strings.Index(said, secret); at >= 0 {
			assert.Fail(t, "a foreign name", "%s: ...%s...", where, said[max(0, at-200):min(len(said), at+100)])
		}
	}
	c.RequireNeverOvercommitted()
}

// What would be if is told of pods of namespaces that a tenant may see, and of no others: a pod that is there is
// answered as one that is not.
func TestWhatIfTellsNothingOfForeignPods(t *testing.T) {
	c := newCluster(t)
	c.newTenant()
	c.grant("globalreserve-tenant", userOf(ours))
	own, b := c.Cluster, c.Cluster
	own.Namespace, b.Namespace = ours, theirs
	own.CreatePod("own", team, "1")
	there := b.CreatePod("there", team, "1", func(pod *corev1.Pod) { pod.Spec.NodeName = c.nodes[0] })
	who := c.withCertificate(ours)
	named := func(namespace, name string, uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}
	}
	ask := func(pod *corev1.Pod, without ...reserver.GonePod) (int, string) {
		question := &reserver.WhatIfRequest{
			Request: reserver.Request{Pods: []*corev1.Pod{pod}, Nodes: c.nodes[:1]},
			Without: without,
		}
		status, answer, err := who.ask(t.Context(), http.MethodPost, c.servers[0].tls+"/v1/whatif", question)
		require.NoError(t, err)
		return status, answer
	}
	c.Eventually(func(t *assert.CollectT) { // the server has seen both
		status, answer := ask(named(ours, "own", ""))
		assert.Equal(t, http.StatusOK, status, answer)
		assert.Contains(t, answer, `"Fits":true`)
		assert.NotNil(t, c.AllocationOf(there))
	})
	for what, answered := range map[string]func(name string) (int, string){
		"the pod": func(name string) (int, string) { return ask(named(theirs, name, "")) },
		"one gone": func(name string) (int, string) {
			return ask(named(ours, "own", ""), reserver.GonePod{Namespace: theirs, Name: name})
		},
		"by its UID": func(name string) (int, string) { return ask(named(theirs, name, there.UID)) },
	} {
		status, answer := answered("there")
		assert.Equal(t, http.StatusForbidden, status, "%s: %s", what, answer)
		_, none := answered("nobody")
		assert.Equal(t, none, answer, what)
	}
	status, answer := ask(named(ours, "own", there.UID))
	assert.Equal(t, http.StatusForbidden, status, answer)
}
