//go:build e2e

package monitoring

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// dashboard is what the tests read of one of Grafana's.
type dashboard struct {
	UID    string `json:"uid"`
	Panels []struct {
		ID      int       `json:"id"`
		Type    string    `json:"type"`
		Title   string    `json:"title"`
		GridPos rectangle `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name string `json:"name"`
		} `json:"list"`
	} `json:"templating"`
}

type rectangle struct{ H, W, X, Y int }

func (r rectangle) overlaps(o rectangle) bool {
	return r.X < o.X+o.W && o.X < r.X+r.W && r.Y < o.Y+o.H && o.Y < r.Y+r.H
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	content, err := os.ReadFile(testbed.File(t, "manifests", "monitoring", "dashboard.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &d))
	return d
}

// TestDashboardIsWhole: panels have titles, numbers and places of their own, and name no variable that is not there.
func TestDashboardIsWhole(t *testing.T) {
	d := readDashboard(t)
	variables := sets.New("__rate_interval")
	for _, v := range d.Templating.List {
		variables.Insert(v.Name)
	}
	assert.Equal(t, "globalreserve", d.UID)
	ids := sets.New[int]()
	for i, p := range d.Panels {
		assert.NotEmpty(t, p.Title)
		assert.False(t, ids.Has(p.ID), p.Title)
		ids.Insert(p.ID)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for _, other := range d.Panels[:i] {
			assert.False(t, p.GridPos.overlaps(other.GridPos), "%s and %s", p.Title, other.Title)
		}
		for _, target := range p.Targets {
			for _, used := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				assert.True(t, variables.Has(used[1]), "%s: %s", p.Title, used[0])
			}
		}
	}
}

// TestDashboardHasData asks a real Prometheus every query of the dashboard over a recorded load, and that it knows all
// that the alerts go by. Of the alerts those come that the load is wrong for: one fires at once, the others wait
// for their time to be over.
func TestDashboardHasData(t *testing.T) {
	cluster := testbed.NewCluster(t, shared.StartT(t))
	c := &cluster
	c.AddNodes(2, controlplane.NodeTemplate{})
	policy := testbed.Policy(t, fmt.Sprintf("namespaces: {%s: {maxSlots: 1}}\n", c.Namespace))
	c.StartServer(clusterload.ServerOptions{Args: []string{"--policy-file=" + policy}})
	p := startPrometheus(t, c)
	load(c)
	d := readDashboard(t)
	c.Eventually(func(t *assert.CollectT) {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				expr := strings.NewReplacer("$namespace", ".*", "$__rate_interval", "20s").Replace(target.Expr)
				series, err := p.query(expr)
				if !assert.NoError(t, err, "%s: %s", panel.Title, expr) {
					continue
				}
				assert.NotEmpty(t, series, "%s: %s", panel.Title, expr)
				for _, s := range series {
					for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
						assert.Contains(t, s.Metric, label[1], "%s: the legend", panel.Title)
					}
				}
			}
		}
	})
	alerts := map[string]string{}
	c.Eventually(func(t *assert.CollectT) {
		found, err := p.query("ALERTS")
		require.NoError(t, err)
		clear(alerts)
		for _, s := range found {
			alerts[s.Metric["alertname"]] = s.Metric["alertstate"]
		}
		assert.NotContains(t, alerts, "GlobalReserveNoLeader")
		assert.Equal(t, "firing", alerts["GlobalReserveBypassedBinds"])
		assert.Contains(t, alerts, "GlobalReserveOvercommit")
		assert.Contains(t, alerts, "GlobalReserveHalfGang")
	})
	rules, err := os.ReadFile(testbed.File(t, "manifests", "monitoring", "rules.yaml"))
	require.NoError(t, err)
	names := sets.New(regexp.MustCompile(`\bglobalreserve_\w+`).FindAllString(string(rules), -1)...)
	// These appear with the first of what they count.
	names.Delete("globalreserve_bind_outcomes_total")
	for name := range names {
		series, err := p.query("count(last_over_time(" + name + "[1m]))")
		require.NoError(t, err)
		assert.NotEmpty(t, series, "alerts go by %s, which the server does not have", name)
	}
}

// load does a bit of everything that a metric counts.
func load(c *testbed.Cluster) {
	for i := range 3 {
		pod := c.CreatePod(fmt.Sprintf("bound-%d", i), testbed.Nobody, "1")
		require.Empty(c.T, c.Bind(pod, "node-0"))
	}
	large := c.CreatePod("large", testbed.Nobody, "3")
	require.NotEmpty(c.T, c.Filter(large, "node-0"))
	require.NotEmpty(c.T, c.Bind(large, "node-0"))
	bypassed := c.CreatePod("bypassed", "rogue", "1")
	require.NoError(c.T, c.BindDirectly(bypassed.Name, "node-1"))
	c.CreateReservation("kept", "{ttl: 10m, slots: [{name: a, requests: {cpu: 1}}]}")
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	gang := c.CreatePod("gang", testbed.Nobody, "1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.GangAnnotation: "g", v1alpha1.GangMinAnnotation: "2"}
	})
	require.NotEmpty(c.T, c.Bind(gang, "node-1"), "half a gang")
	require.NoError(c.T, c.BindDirectly(gang.Name, "node-1"))
	over := c.CreatePod("over", "rogue", "3")
	require.NoError(c.T, c.BindDirectly(over.Name, "node-1"), "one CPU more than there is")
	c.CreateDevice("named", "node-0", "model")
	c.CreateReservation("over-the-limit", "{ttl: 10m, slots: [{name: a, requests: {cpu: 1m}}]}")
	require.Error(c.T, c.Ledger.Get(c.T.Context(), "/v1/nodes/none", nil), "there is none")
}

// prometheus is a running one that scrapes the server of a cluster.
type prometheus struct{ url string }

func startPrometheus(t *testing.T, c *testbed.Cluster) prometheus {
	t.Helper()
	folder := t.TempDir()
	writeRules(t, folder)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: globalreserve-metrics
  static_configs: [{targets: [%q], labels: {namespace: globalreserve-system}}]
`, strings.TrimPrefix(c.Server.URL, "http://"))
	file := filepath.Join(folder, "prometheus.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	port, err := c.FreePort()
	require.NoError(t, err)
	p := prometheus{fmt.Sprintf("http://127.0.0.1:%d", port)}
	_, err = c.StartProcess(t.Context(), controlplane.ProcessOptions{
		Path: testbed.File(t, "bin", "monitoring", "prometheus"),
		Args: []string{
			"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(folder, "data"),
			fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port),
		},
		Ready: controlplane.HTTPReady(p.url+"/-/ready", nil),
	})
	require.NoError(t, err, "`make prometheus` builds it")
	return p
}

// series is one of an answer.
type series struct {
	Metric map[string]string `json:"metric"`
}

func (p prometheus) query(expr string) ([]series, error) {
	response, err := http.PostForm(p.url+"/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []series `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	return answer.Data.Result, nil
}

// writeRules writes the rules of the PrometheusRule the way Prometheus itself reads them.
func writeRules(t *testing.T, folder string) (file string) {
	t.Helper()
	content, err := os.ReadFile(testbed.File(t, "manifests", "monitoring", "rules.yaml"))
	require.NoError(t, err)
	var object struct {
		Spec any `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(content, &object))
	rules, err := yaml.Marshal(object.Spec)
	require.NoError(t, err)
	file = filepath.Join(folder, "rules.yaml")
	require.NoError(t, os.WriteFile(file, rules, 0o600))
	return file
}

// TestAlerts: each alert fires for what it is about, after its time, and none in an hour of normal churn; see
// testdata/alerts.yaml.
func TestAlerts(t *testing.T) {
	folder := t.TempDir()
	rules := writeRules(t, folder)
	content, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	require.NoError(t, err)
	tests := filepath.Join(folder, "alerts.yaml")
	require.NoError(t, os.WriteFile(tests, content, 0o600))
	promtool := testbed.File(t, "bin", "monitoring", "promtool")
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", tests}} {
		said, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s; `make prometheus` builds promtool", said)
	}
}
