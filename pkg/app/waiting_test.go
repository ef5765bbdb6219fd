package app

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// A pod that is bound, or gone, does not wait any more.
func TestPodsThatDoNotWaitAnyMore(t *testing.T) {
	client := fake.NewClientset()
	a := startApp(t, testOptions(), client)
	pods := client.CoreV1().Pods("ns")
	ends := map[string]func(pod *v1.Pod) error{
		"bound": func(pod *v1.Pod) error {
			pod.Spec.NodeName, pod.ResourceVersion = "n", "2"
			_, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{})
			return err
		},
		"gone": func(pod *v1.Pod) error { return pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}) },
	}
	for name, end := range ends {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		}}
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		known := func() bool { _, ok := a.cache.Pod("ns", name); return ok }
		require.Eventually(t, known, time.Minute, time.Millisecond)
		info, _ := a.cache.Pod("ns", name)
		a.waiting.Await(info.WithCaller("somebody"), a.ledger.Revision(), nil, false)
		require.Equal(t, "somebody", a.waiting.LastCaller(pod.UID))
		require.NoError(t, end(pod))
		settled := func() bool { return a.waiting.LastCaller(pod.UID) == "" }
		require.Eventually(t, settled, time.Minute, time.Millisecond, name)
	}
}

// A pod that a gate refuses is woken when a policy comes into force under which the gate is open, also where that
// changes no limit.
func TestPolicyOpensAGate(t *testing.T) {
	pod := func(name string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"},
			Spec:       v1.PodSpec{SchedulerName: "second"},
		}
	}
	client := fake.NewClientset(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status:     v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("10")}},
	}, pod("p"), pod("q"))
	o := testOptions()
	o.PolicyFile = filepath.Join(t.TempDir(), "policy.yaml")
	list := func(callers string) {
		require.NoError(t, os.WriteFile(o.PolicyFile+".new", fmt.Appendf(nil,
			"apiVersion: config.globalreserve.io/v1alpha1\n"+
				"kind: GlobalReservePolicy\nschedulers:\n- {name: first, callers: [alice], limits: {cpu: 1}}\n"+
				"- {name: second, callers: %s, limits: {cpu: 2}}\n", callers), 0o600))
		require.NoError(t, os.Rename(o.PolicyFile+".new", o.PolicyFile))
	}
	list("[bob]")
	a := startApp(t, o, client)
	await := func(name, caller string) {
		info, ok := a.cache.Pod("ns", name)
		require.True(t, ok)
		a.waiting.Await(info.WithCaller(caller), 0, []string{"n"}, caller == "alice")
		require.Equal(t, caller, a.waiting.LastCaller(info.Ref.UID))
	}
	woken := func(name string) {
		t.Helper()
		isWoken := func() bool { return a.waiting.LastCaller(types.UID(name)) == "" }
		require.Eventually(t, isWoken, time.Minute, time.Millisecond, name)
	}
	await("p", "alice")
	await("q", "bob")
	woken("q") // so p was looked at, too
	require.Equal(t, "alice", a.waiting.LastCaller("p"))
	list("[bob, alice]")
	woken("p")
}
