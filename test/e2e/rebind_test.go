package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// rebindWatch records every pod whose node changes after it was bound.
type rebindWatch struct {
	mu    sync.Mutex // guards what follows
	nodes map[types.UID]string
	moved []string
}

func startRebindWatch(t *testing.T, client kubernetes.Interface) *rebindWatch {
	t.Helper()
	w := &rebindWatch{nodes: map[types.UID]string{}}
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.look(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { w.look(object.(*corev1.Pod)) },
	})
	require.NoError(t, err)
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	factory.WaitForCacheSync(stop)
	return w
}

func (w *rebindWatch) look(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.nodes[pod.UID], pod.Spec.NodeName
	if before != "" && before != now {
		w.moved = append(w.moved, fmt.Sprintf("%s/%s from %q to %q", pod.Namespace, pod.Name, before, now))
	}
	w.nodes[pod.UID] = now
}

func (w *rebindWatch) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.moved)
}
