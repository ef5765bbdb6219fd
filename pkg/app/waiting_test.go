package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
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
