package controller

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// APIPatcher is the PodPatcher that writes to the API server.
type APIPatcher struct{ Pods corev1client.PodsGetter }

// Nominate sets status.nominatedNodeName of a pod, which makes kube-scheduler try
// that node first. A pod that another one has taken the name of is refused.
func (p APIPatcher) Nominate(ctx context.Context, pod ledger.PodRef, node string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]string{"nominatedNodeName": node},
	})
	if err != nil {
		return fmt.Errorf("encoding the patch of pod %s: %w", pod, err)
	}
	_, err = p.Pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("nominating node %s for pod %s: %w", node, pod, err)
	}
	return nil
}

// Clear removes status.nominatedNodeName of a pod if it is still the node given:
// the API server answers 422 where it is not, or the pod is another one.
func (p APIPatcher) Clear(ctx context.Context, pod ledger.PodRef, node string) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	const nominated = "/status/nominatedNodeName"
	patch, err := json.Marshal([]operation{
		{"test", "/metadata/uid", pod.UID}, {"test", nominated, node}, {"remove", nominated, nil},
	})
	if err != nil {
		return fmt.Errorf("encoding the patch of pod %s: %w", pod, err)
	}
	_, err = p.Pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("clearing the nominated node %s of pod %s: %w", node, pod, err)
	}
	return nil
}

// Annotate sets one annotation of a pod, as AnnotateAll does.
func (p APIPatcher) Annotate(ctx context.Context, pod ledger.PodRef, key, value string) error {
	return p.AnnotateAll(ctx, pod, map[string]string{key: value})
}

// AnnotateAll sets annotations of a pod by a merge patch that names the pod's UID: the
// API server answers 409 where another pod has taken the name.
func (p APIPatcher) AnnotateAll(ctx context.Context, pod ledger.PodRef, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID,
		"annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding the patch of pod %s: %w", pod, err)
	}
	_, err = p.Pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("annotating pod %s: %w", pod, err)
	}
	return nil
}
