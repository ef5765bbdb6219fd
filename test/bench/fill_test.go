package bench

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	// putsPerWrite is the most that etcd takes in one transaction.
	putsPerWrite = 128
	etcdWriters  = 4
)

// fill makes bound pods. They are written into etcd the way the API server writes them, several times
// as fast as it could take them: one real pod is the pattern of all.
func fill(b *testing.B, c *controlplane.ControlPlane) {
	b.Helper()
	began := time.Now()
	pattern, err := createPods(b.Context(), c.Client(), 1, func(_ int, pod *corev1.Pod) {
		pod.Name, pod.Spec.NodeName = podName(0), nodeName(0)
	})
	require.NoError(b, err)
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(etcdWriters)
	for first := 1; first < memoryPods; first += putsPerWrite {
		group.Go(func() error {
			return writePods(ctx, c, pattern[0].DeepCopy(), first, min(first+putsPerWrite, memoryPods))
		})
	}
	require.NoError(b, group.Wait())
	awaitCaughtUp(b, c)
	say("%d pods after %s", memoryPods, time.Since(began).Round(time.Second))
}

// awaitCaughtUp waits until the API server has taken in what was written behind its back.
func awaitCaughtUp(b *testing.B, c *controlplane.ControlPlane) {
	b.Helper()
	var last string
	err := wait.PollUntilContextTimeout(b.Context(), time.Second, runTimeout, true,
		func(ctx context.Context) (bool, error) {
			page, err := c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
			if err != nil || page.RemainingItemCount == nil {
				last = fmt.Sprint("no count: ", err)
				return false, nil
			}
			last = fmt.Sprint(*page.RemainingItemCount+1, " pods")
			return *page.RemainingItemCount+1 == memoryPods, nil
		})
	require.NoError(b, err, "the API server has %s", last)
}

func podName(i int) string  { return fmt.Sprintf("checkout-6b8d7c9f54-%06d", i) }
func nodeName(i int) string { return fmt.Sprintf("node-%d", i%nodes) }

// put is one write of a transaction of etcd's JSON gateway; the bytes travel in base64.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// writePods writes pods with the numbers from first up to but without end in one transaction.
func writePods(ctx context.Context, c *controlplane.ControlPlane, pod *corev1.Pod, first, end int) error {
	storage := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	type operation struct {
		Put put `json:"requestPut"`
	}
	var transaction struct {
		Success []operation `json:"success"`
	}
	pod.APIVersion, pod.Kind, pod.ResourceVersion = "v1", "Pod", ""
	for i := first; i < end; i++ {
		pod.Name, pod.Spec.NodeName = podName(i), nodeName(i)
		pod.UID = types.UID(fmt.Sprintf("8c1f0a52-3f0e-4c43-9d1b-%012d", i))
		var value bytes.Buffer
		if err := storage.Encode(pod, &value); err != nil {
			return err
		}
		key := "/registry/pods/" + pod.Namespace + "/" + pod.Name
		transaction.Success = append(transaction.Success, operation{put{Key: []byte(key), Value: value.Bytes()}})
	}
	return c.EtcdCall(ctx, "txn", &transaction, &struct{}{})
}
