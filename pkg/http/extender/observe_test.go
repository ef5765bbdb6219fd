package extender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/http/observe"
)

// Who only observes answers a scheduler as if there were capacity everywhere, and binds where it says.
func TestObserving(t *testing.T) {
	w := newWorld(t)
	w.node("a", 0, 0)
	var bound []string
	var fails error
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		bound = append(bound, binding.Namespace+"/"+binding.Name+" "+string(binding.UID)+" "+binding.Target.Name)
		return true, binding, fails
	})
	w.o.Observer = observe.New(observe.Options{Client: client, Arbiter: w.o.Arbiter, BindTimeout: time.Minute, Log: w.Log})
	const pod = `"Pod":{"metadata":{"namespace":"ns","name":"p","uid":"uid-p"}}`
	assert.Equal(t, map[string]any{
		"Nodes": nil, "NodeNames": []any{"a", "b"}, "FailedNodes": map[string]any{},
		"FailedAndUnresolvableNodes": map[string]any{}, "Error": "",
	}, ask[any](w, "filter", `{`+pod+`,"NodeNames":["a","b"]}`))
	assert.Equal(t, []any{map[string]any{"Host": "a", "Score": 0.0}, map[string]any{"Host": "b", "Score": 0.0}},
		ask[any](w, "prioritize", `{`+pod+`,"NodeNames":["a","b"]}`))
	victims := map[string]any{"a": map[string]any{"Pods": []any{map[string]any{"UID": "v"}}, "NumPDBViolations": 1.0}}
	assert.Equal(t, map[string]any{"NodeNameToMetaVictims": victims},
		ask[any](w, "preempt", `{`+pod+`,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}],"NumPDBViolations":1}}}`))
	w.create(newPod("p"))
	const bind = `{"PodNamespace":"ns","PodName":"p","PodUID":"uid-p","Node":"a"}`
	assert.Equal(t, map[string]any{"Error": ""}, ask[any](w, "bind", bind))
	fails = errDown
	failed := ask[map[string]any](w, "bind", bind)
	assert.Contains(t, failed["Error"], errDown.Error())
	assert.Equal(t, "failed", failed["Outcome"])
	assert.Len(t, failed, 2)
	assert.Equal(t, []string{"ns/p uid-p a", "ns/p uid-p a"}, bound)
	assert.Equal(t, 1, w.Counted(t, "decisions_total", verbBind, resultGranted))
	assert.Equal(t, 2, w.Counted(t, "decisions_total"), "of what is not decided nothing is counted")
}
