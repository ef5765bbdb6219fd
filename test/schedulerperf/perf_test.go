//go:build schedulerperf

// Package schedulerperf runs cases of Kubernetes' own scheduler benchmark (k8s.io/kubernetes,
// test/integration/scheduler_perf) with a plain kube-scheduler, and with GlobalReserve behind it and inside it, and
// prints one table. The cases and the pods are read from the module of Kubernetes, and the configurations from
// scheduler-config and manifests; nothing is copied.
//
// A build tag keeps it out of what is compiled for every change: it needs all of kube-apiserver, as a library.
package schedulerperf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	_ "k8s.io/component-base/logs/json/register" // as the benchmark's own packages have it
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

const root = "../.."

// benchmarkCase is a workload of a case of Kubernetes' benchmark, which has a floor of pods/s there (its threshold).
type benchmarkCase struct {
	dir, name, workload string
	// params are what this takes instead of what the workload says: as many nodes and pods as two cores schedule nine
	// times (three rounds of three arms) in two or three minutes. A sample of 2% is 100 nodes from 1,000 to 5,000.
	params map[string]any
}

var cases = []benchmarkCase{
	{"misc", "SchedulingBasic", "5000Nodes_10000Pods", params(1000, 500, 1000)},
	{"affinity", "SchedulingPodAntiAffinity", "5000Nodes_2000Pods", params(1000, 200, 500)},
	{"affinity", "SchedulingPodAffinity", "5000Nodes_5000Pods", params(1000, 500, 500)},
	{"topology_spreading", "TopologySpreading", "5000Nodes_5000Pods", params(1000, 500, 1000)},
	{"default_preemption", "PreemptionBasic", "1000Nodes", params(250, 1000, 250)},
	{"default_preemption", "Unschedulable", "5kNodes/100Init/10kPods", params(1000, 100, 1000)},
	{"misc", "SchedulingWithMixedChurn", "5000Nodes_10000Pods", params(1000, 0, 1000)},
	{"misc", "SchedulingDaemonset", "15000Nodes", params(1000, 0, 1000)},
}

func params(nodes, initial, measured int) map[string]any {
	p := map[string]any{"initNodes": nodes, "measurePods": measured}
	if initial > 0 { // one that a case does not use is an error
		p["initPods"] = initial
	}
	return p
}

// arm is a way to schedule.
type arm struct {
	name string
	// config is a file of scheduler-config; empty is a kube-scheduler with the sample of those files, else its defaults.
	config string
	// server: bin/globalreserve runs beside the scheduler.
	server bool
}

var arms = []arm{
	{name: "plain kube-scheduler"},
	{"extender", "default-scheduler.yaml", true},
	{"plugin", "plugin/local.yaml", false},
}

const plain = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 2
`

var (
	rounds = flag.Int("rounds", 3, "how often each arm runs each case")

	only = flag.String("case", "", "the only case to run")
	path = flag.String("table", "", "the Markdown file whose table this is, between two comments")
)

func TestMain(m *testing.M) {
	bin, err := filepath.Abs(root + "/bin/controlplane")
	if err == nil {
		err = os.Setenv("PATH", bin+":"+os.Getenv("PATH")) // of etcd
	}
	if err == nil {
		err = perf.InitTests()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkSchedulerPerf prints the throughput of every case in every arm: medians of the rounds, and of the ratios
// within a round. The arms take turns, so that what else the machine does meets all of them alike.
func BenchmarkSchedulerPerf(b *testing.B) {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	must(b, err)
	repository, err := filepath.Abs(root)
	must(b, err)
	table, err := filepath.Abs(*path)
	must(b, err)
	rows := &bytes.Buffer{}
	rows.WriteString("| case | nodes | pods | floor |")
	for _, a := range arms {
		fmt.Fprintf(rows, " %s |", a.name)
	}
	fmt.Fprintf(rows, "\n|---|---|---|---|%s\n", strings.Repeat("---|", len(arms)))
	for _, c := range cases {
		if *only != "" && *only != c.name {
			continue
		}
		rates, ratios := make([][]float64, len(arms)), make([][]float64, len(arms))
		var floor any
		for round := range *rounds {
			for i, a := range arms {
				r := &runner{arm: a, repository: repository, results: b.TempDir()}
				rate := 0.0
				b.Run(fmt.Sprintf("%s/%s/%d", c.name, a.name, round), func(b *testing.B) {
					b.Chdir(filepath.Join(strings.TrimSpace(string(folder)), "test", "integration", "scheduler_perf", c.dir))
					rate, floor = r.measure(b, c)
				})
				if rate == 0 {
					b.Fatalf("%s: %s came to nothing", c.name, a.name)
				}
				rates[i] = append(rates[i], rate)
				ratios[i] = append(ratios[i], rate/rates[0][round])
			}
		}
		fmt.Fprintf(rows, "| %s | %v | %v | %v |", c.name, c.params["initNodes"], c.params["measurePods"],
			cmp.Or(floor, any("none")))
		for i := range arms {
			fmt.Fprintf(rows, " %.0f (%.2f) |", median(rates[i]), median(ratios[i]))
		}
		rows.WriteString("\n")
		fmt.Printf("SUMMARY %s\n%s", c.name, rows)
	}
	if *path != "" {
		must(b, replaceTable(table, rows.String()))
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// runner runs cases in one arm.
type runner struct {
	arm
	repository, results string
	port, health        int
}

// measure returns the average throughput of a case, in pods/s, and the floor that Kubernetes has for it.
func (r *runner) measure(b *testing.B, c benchmarkCase) (throughput float64, floor any) {
	r.port, r.health = freePort(b), freePort(b)
	must(b, flag.Set("data-items-dir", r.results))
	must(b, flag.Set("perf-scheduling-label-filter", "chosen"))
	log := logrus.New()
	log.SetLevel(logrus.WarnLevel)
	// The scheduler ends with the case, and the server with it.
	exit := func(err error) { b.Errorf("the ledger ended: %v", err) }
	plugins := schedulerplugin.NewPlugins(schedulerplugin.Options{Log: log, Out: os.Stderr, Exit: exit})
	file, floor := r.caseFile(b, c)
	perf.RunBenchmarkPerfScheduling(b, file, "globalreserve",
		frameworkruntime.Registry{schedulerplugin.Name: plugins.New},
		perf.WithPrepareFn(r.prepare))
	return r.throughput(b), floor
}

// caseFile writes the one workload of a case to a file, with the arm's scheduler.
func (r *runner) caseFile(b *testing.B, c benchmarkCase) (file string, floor any) {
	var all []map[string]any
	text, err := os.ReadFile("performance-config.yaml")
	must(b, err)
	must(b, yaml.Unmarshal(text, &all))
	at := slices.IndexFunc(all, func(one map[string]any) bool { return one["name"] == c.name })
	if at < 0 {
		b.Fatalf("%s has no case %s", c.dir, c.name)
	}
	chosen := all[at]
	workloads, _ := chosen["workloads"].([]any)
	at = slices.IndexFunc(workloads, func(one any) bool { return one.(map[string]any)["name"] == c.workload })
	if at < 0 {
		b.Fatalf("%s has no workload %s", c.name, c.workload)
	}
	workload := workloads[at].(map[string]any)
	workload["labels"], workload["params"] = []string{"chosen"}, c.params
	floor = workload["threshold"]
	delete(workload, "threshold") // that of Kubernetes' own machines
	chosen["workloads"], chosen["labels"] = []any{workload}, nil
	chosen["schedulerConfigPath"] = r.schedulerConfig(b)
	text, err = yaml.Marshal([]any{chosen})
	must(b, err)
	return r.write(b, "case.yaml", text), floor
}

// schedulerConfig writes a file of scheduler-config with the address of the server; all else stays as it is.
func (r *runner) schedulerConfig(b *testing.B) string {
	if r.config == "" {
		return r.write(b, "scheduler.yaml", []byte(plain))
	}
	text, err := os.ReadFile(filepath.Join(r.repository, "scheduler-config", r.config))
	must(b, err)
	address := fmt.Sprintf("127.0.0.1:%d", r.port)
	changed := strings.NewReplacer("127.0.0.1:23456", address, "port: 23456", fmt.Sprintf("port: %d", r.port)).
		Replace(string(text))
	if changed == string(text) {
		b.Fatalf("%s does not say where the server is", r.config)
	}
	return r.write(b, "scheduler.yaml", []byte(changed))
}

// prepare starts the server as the static pod does, beside a scheduler that has started.
func (r *runner) prepare(tCtx ktesting.TContext) error {
	if !r.server {
		return nil
	}
	kubeconfig, err := writeKubeconfig(tCtx.RESTConfig(), r.results)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.repository, "manifests", "static-pod", "globalreserve.yaml"))
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal(text, pod); err != nil {
		return err
	}
	here := []string{
		"--kubeconfig=" + kubeconfig, fmt.Sprintf("--port=%d", r.port),
		fmt.Sprintf("--health-address=127.0.0.1:%d", r.health),
		"--peer-address=127.0.0.1:0", "--policy-file=", "--log-level=warn",
	}
	server := exec.Command(filepath.Join(r.repository, "bin", "globalreserve"),
		append(slices.Clone(pod.Spec.Containers[0].Args), here...)...)
	server.Stdout, server.Stderr = os.Stderr, os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		return err
	}
	tCtx.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	})
	return awaitReady(tCtx, fmt.Sprintf("http://127.0.0.1:%d/readyz", r.health))
}

func awaitReady(tCtx ktesting.TContext, url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	var why string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if answer, err := client.Get(url); err == nil {
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			why = string(body)
		}
		select {
		case <-tCtx.Done():
			return tCtx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s was not ready within a minute: %s", url, why)
}

// throughput reads what the benchmark wrote.
func (r *runner) throughput(b *testing.B) float64 {
	files, err := filepath.Glob(filepath.Join(r.results, "*.json"))
	must(b, err)
	for _, file := range files {
		var items perf.DataItems
		text, err := os.ReadFile(file)
		must(b, err)
		must(b, json.Unmarshal(text, &items))
		for _, item := range items.DataItems {
			if item.Labels["Metric"] == "SchedulingThroughput" {
				return item.Data["Average"]
			}
		}
	}
	b.Fatal("the benchmark wrote no throughput")
	return 0
}

func (r *runner) write(b *testing.B, name string, text []byte) string {
	file := filepath.Join(r.results, name)
	must(b, os.WriteFile(file, text, 0o600))
	return file
}

func writeKubeconfig(c *rest.Config, dir string) (string, error) {
	file := filepath.Join(dir, "kubeconfig")
	return file, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: c.Host, CertificateAuthority: c.CAFile, CertificateAuthorityData: c.CAData,
			InsecureSkipTLSVerify: c.Insecure, TLSServerName: c.ServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			Token: c.BearerToken, ClientCertificateData: c.CertData, ClientKeyData: c.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
	}, file)
}

// The table stands between these in its file.
const (
	begin = "<!-- scheduler_perf: begin -->\n"
	end   = "<!-- scheduler_perf: end -->\n"
)

func replaceTable(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no place for the table", file)
	}
	return os.WriteFile(file, []byte(before+begin+table+end+after), 0o644)
}

func freePort(b *testing.B) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
