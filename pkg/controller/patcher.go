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

// Annotate sets one annotation of a pod by a merge patch that names the pod's
// UID: the API server answers 409 where another pod has taken the name.
func (p APIPatcher) Annotate(ctx context.Context, pod ledger.PodRef, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID,
		"annotations": map[string]string{key: value},
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
