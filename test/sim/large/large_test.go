package large

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	nodes      = 30000
	schedulers = 8
	pods       = 30000
	// nodeMilli is what a node has, of which filled is used when schedulers begin: there is room for two pods on each.
	nodeMilli, filled, podMilli = 16000, 15000, 500
	startTimeout                = 2 * time.Minute
)

// BenchmarkLarge has eight schedulers bind pods to nodes that all of them want.
func BenchmarkLarge(b *testing.B) {
	api := startAPIServer(b)
	names := make([]string, nodes)
	for i := range names {
		names[i] = "node-" + strconv.Itoa(i)
	}
	api.createNodes(b, names, nodeMilli)
	api.createPods(b, "there", nodes, filled, names)
	for b.Loop() {
		server := startServer(b, api)
		before, _ := usage(b, server.PID())
		waiting := api.createPods(b, "new", pods, podMilli, nil)
		others, _ := usage(b, os.Getpid())
		began := time.Now()
		sum := compete(b, server.url, names, waiting)
		took := time.Since(began)
		cpu, resident := usage(b, server.PID())
		cpu -= before
		driver, _ := usage(b, os.Getpid())
		require.Equal(b, pods, sum.bound)
		fmt.Printf("large: nodes=%d schedulers=%d pods=%d pods/s=%.0f binds-refused=%.3f nodes-refused=%.3f no-node=%d "+
			"filter-p50-ms=%.1f filter-p99-ms=%.1f bind-p50-ms=%.1f bind-p99-ms=%.1f server-ms/pod=%.2f "+
			"server-mib=%d others-cores=%.2f\n",
			nodes, schedulers, pods, float64(pods)/took.Seconds(), float64(sum.refused)/float64(sum.refused+sum.bound),
			float64(sum.unfit)/float64(sum.asked), sum.noNode,
			at(sum.filters, 50), at(sum.filters, 99), at(sum.binds, 50), at(sum.binds, 99),
			milliseconds(cpu)/float64(pods), resident>>20, (driver-others).Seconds()/took.Seconds())
		api.requireNothingOvercommitted(b)
		_, err := server.Stop()
		require.NoError(b, err)
	}
}

// compete has all schedulers bind the pods, each as many, and adds up what they have seen.
func compete(b *testing.B, server string, names []string, waiting []*corev1.Pod) (sum figures) {
	b.Helper()
	truth := &room{left: slices.Repeat([]int64{nodeMilli - filled}, len(names))}
	index := map[string]int{}
	for i, name := range names {
		index[name] = i
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: schedulers * underWay}}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(b.Context())
	all := make([]*scheduler, schedulers)
	for i := range all {
		s := &scheduler{
			server: server, client: client, nodes: names, index: index, truth: truth,
			dice: rand.New(rand.NewPCG(uint64(i), 0)),
		}
		all[i] = s
		queue := make(chan *corev1.Pod, len(waiting))
		for j := i; j < len(waiting); j += schedulers {
			queue <- waiting[j]
		}
		close(queue)
		group.Go(func() error { return s.run(ctx, queue) })
	}
	require.NoError(b, group.Wait())
	for _, s := range all {
		sum.filters, sum.binds = append(sum.filters, s.filters...), append(sum.binds, s.binds...)
		sum.asked, sum.unfit, sum.noNode = sum.asked+s.asked, sum.unfit+s.unfit, sum.noNode+s.noNode
		sum.bound, sum.refused = sum.bound+s.bound, sum.refused+s.refused
	}
	return sum
}

func at(times []time.Duration, percent int) float64 {
	sorted := slices.Sorted(slices.Values(times))
	return milliseconds(sorted[(len(sorted)-1)*percent/100])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// server is bin/globalreserve as a process.
type server struct {
	*controlplane.Process
	url string
}

func startServer(b *testing.B, api *apiServer) *server {
	b.Helper()
	dir := b.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["it"], config.AuthInfos["it"] = &clientcmdapi.Cluster{Server: api.url}, &clientcmdapi.AuthInfo{}
	config.Contexts["it"], config.CurrentContext = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}, "it"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(b, clientcmd.WriteToFile(*config, kubeconfig))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	address := listener.Addr().String()
	require.NoError(b, listener.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(b, err)
	s := &server{url: "http://" + address}
	s.Process = controlplane.NewProcess(controlplane.ProcessOptions{
		Path: filepath.Join("..", "..", "..", "bin", "globalreserve"), LogFile: filepath.Join(dir, "log"),
		Args:  []string{"--kubeconfig=" + kubeconfig, "--port=" + port, "--peer-address=127.0.0.1:0"},
		Ready: controlplane.HTTPReady(s.url+"/readyz", nil), ReadyTimeout: startTimeout,
	})
	require.NoError(b, s.Start(b.Context()))
	b.Cleanup(func() { _ = s.Kill() })
	return s
}

// usage returns the processor time that a process has used so far, and its memory in bytes.
func usage(b *testing.B, pid int) (cpu time.Duration, resident int) {
	b.Helper()
	proc, err := procfs.NewProc(pid)
	require.NoError(b, err)
	stat, err := proc.Stat()
	require.NoError(b, err)
	return time.Duration(stat.CPUTime() * float64(time.Second)), stat.ResidentMemory()
}
