package requeue

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// APIPatcher is the Patcher and the Nominator that write to the API server.
type APIPatcher struct {
	Pods corev1client.PodsGetter
	// Term is the term that everything is written in.
	Term *election.OwnTerm
}

// Nominate sets status.nominatedNodeName of a pod, which makes kube-scheduler try that node first. Another pod of the
// name is refused, and so is another version, unless that is 0. The same write has a new RetryAnnotation: before its
// queueing hints of 1.32, kube-scheduler tries no pod again of which only the status has changed.
func (p APIPatcher) Nominate(ctx context.Context, pod ledger.PodRef, version uint64, node string) error {
	metadata := map[string]any{"uid": pod.UID, "annotations": map[string]string{v1alpha1.RetryAnnotation: rand.Text()}}
	if version != 0 {
		metadata["resourceVersion"] = strconv.FormatUint(version, 10)
	}
	return p.patch(ctx, "nominating node "+node+" for", pod, types.MergePatchType, map[string]any{
		"metadata": metadata, "status": map[string]string{"nominatedNodeName": node},
	}, "status")
}

// Clear removes status.nominatedNodeName of a pod if it is still the node given:
// the API server answers 422 where it is not, or the pod is another one.
func (p APIPatcher) Clear(ctx context.Context, pod ledger.PodRef, node string) error {
	const nominated = "/status/nominatedNodeName"
	return p.patch(ctx, "clearing the nominated node "+node+" of", pod, types.JSONPatchType, []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": pod.UID},
		{"op": "test", "path": nominated, "value": node},
		{"op": "remove", "path": nominated},
	}, "status")
}

// Annotate sets annotations of a pod by a merge patch that names the pod's UID: the
// API server answers 409 where another pod has taken the name.
func (p APIPatcher) Annotate(ctx context.Context, pod ledger.PodRef, annotations map[string]string) error {
	return p.patch(ctx, "annotating", pod, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "annotations": annotations},
	})
}

// SetUnscheduled gives the condition PodScheduled, which is False, of a pod without a node another reason and message.
// The API server answers 409 where the pod is not the one that was looked at any more: it may have been bound since.
func (p APIPatcher) SetUnscheduled(ctx context.Context, pod *cluster.Pod, reason, message string) error {
	return p.patch(ctx, "setting condition "+string(v1.PodScheduled)+" of", pod.Ref, types.StrategicMergePatchType,
		map[string]any{
			"metadata": map[string]any{
				"uid": pod.Ref.UID, "resourceVersion": strconv.FormatUint(pod.ResourceVersion, 10),
			},
			"status": map[string]any{"conditions": []map[string]any{{
				"type": v1.PodScheduled, "status": v1.ConditionFalse, "reason": reason, "message": message,
			}}},
		}, "status")
}

func (p APIPatcher) patch(ctx context.Context, doing string, pod ledger.PodRef, kind types.PatchType, body any,
	subresources ...string,
) error {
	patch, err := json.Marshal(body)
	if err == nil {
		_, err = p.Pods.Pods(pod.Namespace).Patch(ctx, pod.Name, kind, patch,
			metav1.PatchOptions{FieldManager: p.Term.Get().Manager()}, subresources...)
	}
	if err != nil {
		return fmt.Errorf("%s pod %s: %w", doing, pod, err)
	}
	return nil
}
