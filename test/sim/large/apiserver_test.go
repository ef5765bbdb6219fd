package large

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/sim/fakekube"
)

const (
	// bindsPerSecond is how many Bindings the API server takes.
	bindsPerSecond = 2000
	writers        = 8
	serverUser     = "system:serviceaccount:globalreserve-system:globalreserve"
	namespace      = "default"
)

// apiServer is the cluster's API server.
type apiServer struct {
	client kubernetes.Interface
	url    string
}

// startAPIServer starts one that has the definitions and the fence of manifests/base, and ends with the benchmark.
func startAPIServer(b *testing.B) *apiServer {
	b.Helper()
	klog.SetLogger(logr.Discard())
	kube, err := fakekube.New(fakekube.NewEtcd(), nil, nil)
	require.NoError(b, err)
	b.Cleanup(kube.Close)
	config := kube.Config("admin")
	config.ContentType = "application/vnd.kubernetes.protobuf"
	a := &apiServer{}
	a.client, err = kubernetes.NewForConfig(config)
	require.NoError(b, err)
	for _, name := range []string{namespace, "kube-system", "globalreserve-system"} {
		_, err := a.client.CoreV1().Namespaces().Create(b.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(b, err)
	}
	objects, err := dynamic.NewForConfig(kube.Config("admin"))
	require.NoError(b, err)
	for _, pattern := range []string{"crd/globalreserve.io_*.yaml", "base/fence.yaml", "base/servers.yaml"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "manifests", pattern))
		require.NoError(b, err)
		require.NotEmpty(b, files)
		for _, file := range files {
			create(b, objects, file)
		}
	}
	serve := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "kube-apiserver"}) },
		Transport: kube.Config(serverUser).Transport, FlushInterval: -1,
	}
	binds := rate.NewLimiter(bindsPerSecond, bindsPerSecond/10)
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/binding") && binds.Wait(r.Context()) != nil {
			return
		}
		serve.ServeHTTP(w, r)
	}))
	b.Cleanup(listener.CloseClientConnections)
	a.url = listener.URL
	return a
}

// create creates the cluster-wide objects of a file of manifests.
func create(b *testing.B, objects dynamic.Interface, file string) {
	b.Helper()
	text, err := os.ReadFile(file)
	require.NoError(b, err)
	documents, err := controlplane.Documents(text)
	require.NoError(b, err)
	for _, object := range documents {
		if object.GetNamespace() != "" {
			continue
		}
		kind, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		_, err := objects.Resource(kind).Create(b.Context(), object, metav1.CreateOptions{})
		require.NoError(b, err, file)
	}
}

// createNodes creates all nodes, each with room for milli of CPU.
func (a *apiServer) createNodes(b *testing.B, names []string, milli int64) {
	b.Helper()
	inParallel(b, len(names), func(ctx context.Context, i int) error {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: names[i]},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(milli, resource.DecimalSI),
				corev1.ResourceMemory: resource.MustParse("128Gi"), corev1.ResourcePods: resource.MustParse("110"),
			}},
		}
		_, err := a.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
}

// createPods creates pods that are pending, or bound where there are nodes for them.
func (a *apiServer) createPods(b *testing.B, prefix string, count int, milli int64, nodes []string) []*corev1.Pod {
	b.Helper()
	created := make([]*corev1.Pod, count)
	inParallel(b, count, func(ctx context.Context, i int) (err error) {
		pod := newPod(prefix, i, milli)
		if nodes != nil {
			pod.Spec.NodeName = nodes[i]
		}
		created[i], err = a.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return created
}

// requireNothingOvercommitted adds up what the pods of each node ask for.
func (a *apiServer) requireNothingOvercommitted(b *testing.B) {
	b.Helper()
	list, err := a.client.CoreV1().Pods(namespace).List(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	used := map[string]int64{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		require.NotEmpty(b, spec.NodeName)
		used[spec.NodeName] += spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		require.LessOrEqual(b, used[spec.NodeName], int64(nodeMilli), spec.NodeName)
	}
}

func inParallel(b *testing.B, count int, do func(ctx context.Context, i int) error) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(writers)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	require.NoError(b, group.Wait())
}
