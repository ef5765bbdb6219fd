package decidetest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/decide/drain"
)

// NewDrains returns a Planner for an API server that lists what pods has then.
func (w *World) NewDrains(pods *[]*v1.Pod) *drain.Planner {
	client := &fake.Clientset{}
	client.AddReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		list, asked := &v1.PodList{}, a.(clienttesting.ListAction)
		for _, pod := range *pods {
			where := asked.GetListRestrictions()
			if (a.GetNamespace() == "" || a.GetNamespace() == pod.Namespace) &&
				where.Fields.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName}) &&
				where.Labels.Matches(labels.Set(pod.Labels)) {
				list.Items = append(list.Items, *pod)
			}
		}
		return true, list, nil
	})
	return drain.New(drain.Options{
		Ledger: w.gated(), Question: w.Question, Nodes: w.Nodes, Pods: w.Pods, Client: client,
	})
}
