package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
)

// hostile is a malformed or hostile request.
type hostile struct {
	method string // default POST
	path   string // default /reserve
	body   string
	header []string
	status int    // default 400; 200 means a refusal by the protocol's Error
	want   string // part of the error
}

// withPod is a request for one pod with the given JSON.
func withPod(pod string) string {
	return `{"SchedulerName":"s","Nodes":["node-1"],"Pods":[` + pod + `]}`
}

// withSpec is a request for one pod with the given JSON of its spec.
func withSpec(spec string) string {
	return withPod(`{"metadata":{"name":"a","namespace":"n","uid":"u"},"spec":` + spec + `}`)
}

// asking is a request for one pod that asks for a quantity, given in JSON.
func asking(name, quantity string) string {
	return withSpec(fmt.Sprintf(`{"containers":[{"resources":{"requests":{%q:%s}}}]}`, name, quantity))
}

const goodPod = `{"metadata":{"name":"a","namespace":"n","uid":"u"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`

// with is a request for one good pod, and more fields.
func with(fields string) string {
	return `{"SchedulerName":"s","Nodes":["node-1"],"Pods":[` + goodPod + `],` + fields + `}`
}

// repeated repeats an element of a JSON array.
func repeated(n int, element string) string {
	return "[" + strings.Repeat(element+",", n-1) + element + "]"
}

func hostileForm() map[string]hostile {
	return map[string]hostile{
		"an array":    {body: "[]", want: "got an array"},
		"two objects": {body: with(`"Mode":"Partial"`) + "{}", want: "JSON"},
		"huge body": {
			body:   with(`"RequestID":"` + strings.Repeat("x", 2<<20) + `"`),
			status: http.StatusRequestEntityTooLarge, want: "larger than the limit",
		},
		"XML": {
			body: "<pods/>", header: []string{"Content-Type", "text/xml"},
			status: http.StatusUnsupportedMediaType, want: "Content-Type",
		},
		"GET reserve":        {method: http.MethodGet, status: http.StatusMethodNotAllowed, want: "use"},
		"unknown field":      {body: with(`"DryRunn":true`), want: `\"DryRunn\" is not known`},
		"Pods is an object":  {body: `{"SchedulerName":"s","Nodes":["node-1"],"Pods":{}}`, want: "want an array"},
		"Pods holds strings": {body: withPod(`"a"`), want: "field /Pods/0"},
		"Nodes is a string": {body: `{"SchedulerName":"s","Nodes":"node-1","Pods":[` + goodPod +
			`]}`, want: "want an array"},
		"Nodes holds numbers": {body: `{"SchedulerName":"s","Nodes":[1],"Pods":[` + goodPod +
			`]}`, want: "want a string"},
		"MinRevision is negative": {body: with(`"MinRevision":-1`), want: "not negative"},
	}
}

func hostileGangs() map[string]hostile {
	return map[string]hostile{
		"no scheduler": {body: `{"Nodes":["node-1"],"Pods":[` + goodPod +
			`]}`, want: "SchedulerName is missing"},
		"long scheduler":   {body: `{"SchedulerName":"` + strings.Repeat("s", 300) + `"}`, want: "longer than 253"},
		"NUL in scheduler": {body: `{"SchedulerName":"s\u0000"}`, want: "unprintable"},
		"no pods":          {body: `{"SchedulerName":"s"}`, want: "Pods is empty"},
		"a null pod":       {body: withPod("null"), want: "Pods[0]: metadata.name is missing"},
		"more pods than nodes": {
			body: withPod(goodPod + `,{"metadata":{"name":"b"},"spec":{"containers":[{}]}}`),
			want: "1 names for 2 pods",
		},
		"too many pods": {body: `{"SchedulerName":"s","Pods":` + repeated(10_001, "{}") +
			`}`, want: "more than the limit of 10000"},
		"too many nodes": {body: `{"SchedulerName":"s","Nodes":` + repeated(10_001, `"n"`) +
			`}`, want: "more than the limit of 10000"},
		"the same pod twice": {body: `{"SchedulerName":"s","Nodes":["node-1","node-2"],"Pods":[` + goodPod + "," +
			goodPod + `]}`, want: "Pods[1] is n/a, as is Pods[0]"},
		"the same UID twice": {body: `{"SchedulerName":"s","Nodes":["node-1","node-2"],"Pods":[` + goodPod + "," +
			strings.Replace(goodPod, `"a"`, `"b"`, 1) + `]}`, want: "metadata.uid of Pods[0]"},
		"unknown mode": {body: with(`"Mode":"allornothing"`), want: `Mode \"allornothing\" is not known`},
		"negative TTL": {body: with(`"TTLSeconds":-1`), want: "TTLSeconds is -1"},
		"absurd TTL":   {body: with(`"TTLSeconds":9223372036854775807`), want: "more than ten years"},
		"TTL beyond the policy": {
			body: with(`"TTLSeconds":90000`),
			want: "longer than the 24h0m0s that the policy allows",
		},
		"NUL in RequestID":          {body: with(`"RequestID":"\u0000"`), want: "unprintable"},
		"long RequestID":            {body: with(`"RequestID":"` + strings.Repeat("r", 201) + `"`), want: "longer than 200"},
		"durable, without the kind": {body: with(`"Durable":true`), status: http.StatusOK, want: "install manifests/crd"},
		"name in memory":            {body: with(`"Name":"r"`), want: "this one is kept in memory"},
		"durable as a path":         {body: with(`"Durable":true,"Name":"../r"`), want: `Name \"`},
		"durable in another place": {
			body: with(`"Durable":true,"Namespace":"m"`),
			want: "a reservation is in the namespace of its pods",
		},
		"reserve a reservation": {body: with(`"Reservation":"n/r"`), want: "Reservation does not apply"},
		"whatif of a reservation": {
			path: "/v1/whatif", body: with(`"Reservation":"n/r"`),
			want: "Reservation does not apply",
		},
		"whatif with a name": {
			path: "/v1/whatif", body: with(`"Name":"r"`),
			want: "Name, as Namespace, does not apply",
		},
		"unreserve by name": {
			path: "/unreserve", body: with(`"Name":"r"`),
			want: "Name, as Namespace, does not apply",
		},
		"unreserve both": {
			path: "/unreserve", body: with(`"Reservation":"n/r"`),
			want: "Pods and Reservation are both given",
		},
		"unreserve no name": {
			path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/"}`,
			want: "not of the form namespace/name",
		},
		"unreserve a path": {
			path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"../../r"}`,
			want: "not of the form namespace/name",
		},
		"unreserve, without a store": {
			path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/r"}`,
			status: http.StatusOK, want: "install manifests/crd",
		},
		"unreserve nodes alone": {
			path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/r","Nodes":["node-1"]}`,
			want: "1 names for 0 pods",
		},
		"unreserve as a dry run": {path: "/unreserve", body: with(`"DryRun":true`), want: "DryRun does not apply"},
		"unreserve with a mode":  {path: "/unreserve", body: with(`"Mode":"Partial"`), want: "Mode does not apply"},
		"unreserve with a TTL":   {path: "/unreserve", body: with(`"TTLSeconds":5`), want: "TTLSeconds does not apply"},
		"unreserve nothing":      {path: "/unreserve", body: `{"SchedulerName":"s"}`, want: "Pods is empty"},
		"reserve without":        {body: with(`"Without":[{"Name":"x"}]`), want: "/v1/whatif"},
		"unknown node": {body: `{"SchedulerName":"s","Nodes":["node-9"],"Pods":[` + goodPod +
			`]}`, status: http.StatusOK, want: "not in the ledger"},
		"node of upper case": {body: `{"SchedulerName":"s","Nodes":["Node-1"],"Pods":[` + goodPod +
			`]}`, want: "Nodes[0]"},
		"too many pods to propose": {path: "/v1/whatif", body: `{"Pods":` + manyPods(1_001) +
			`}`, want: "the limit without Nodes is 1000"},
		"whatif without whom": {
			path: "/v1/whatif", body: with(`"Without":[{"Name":"ghost"}]`),
			want: "Without[0]: no pod default/ghost",
		},
		"whatif without nothing": {
			path: "/v1/whatif", body: with(`"Without":[{}]`),
			want: "Without[0]: metadata.name is missing",
		},
	}
}

func hostilePods() map[string]hostile {
	return map[string]hostile{
		"no name":       {body: withPod(`{"metadata":{"uid":"u"}}`), want: "Pods[0]: metadata.name is missing"},
		"NUL in name":   {body: withPod(`{"metadata":{"name":"a\u0000b"}}`), want: `Pods[0]: metadata.name`},
		"slash in name": {body: withPod(`{"metadata":{"name":"a/b"}}`), want: `Pods[0]: metadata.name`},
		"long name": {
			body: withPod(`{"metadata":{"name":"` + strings.Repeat("a", 254) + `"}}`),
			want: `Pods[0]: metadata.name`,
		},
		"dot in namespace": {
			body: withPod(`{"metadata":{"name":"a","namespace":"n.n"}}`),
			want: `Pods[0]: metadata.namespace`,
		},
		"NUL in UID": {body: withPod(`{"metadata":{"name":"a","uid":"\u0000"}}`), want: "metadata.uid"},
		"long UID": {
			body: withPod(`{"metadata":{"name":"a","uid":"` + strings.Repeat("u", 129) + `"}}`),
			want: "metadata.uid",
		},
		"on another node": {body: withSpec(`{"nodeName":"node-2","containers":[{}]}`), want: "spec.nodeName"},
		"negative CPU": {
			body: asking("cpu", `"-1"`),
			want: "Pods[0]: spec.containers[0].resources.requests[cpu] is -1",
		},
		"overflowing CPU": {body: asking("cpu", `"9223372036854775807"`), want: "too large"},
		"overflowing sum": {body: withSpec(`{"containers":` +
			repeated(2, `{"resources":{"requests":{"memory":"9E"}}}`) + `}`), want: "too large"},
		"huge exponent":         {body: asking("memory", `"1e30000000"`), want: "exponent"},
		"long quantity":         {body: asking("cpu", `"`+strings.Repeat("1", 100)+`"`), want: "longer than 64"},
		"not a quantity":        {body: asking("cpu", `"lots"`), want: "quantity is not usable"},
		"quantity is an object": {body: asking("cpu", `{}`), want: "want a quantity"},
		"too many containers": {
			body: withSpec(`{"containers":` + repeated(1_001, "{}") + `}`),
			want: "more than the limit of 1000",
		},
		"too many tolerations": {
			body: withSpec(`{"containers":[{}],"tolerations":` + repeated(1_001, "{}") + `}`),
			want: "more than the limit of 1000",
		},
		"too many resources": {
			body: withSpec(`{"containers":[{}],"overhead":{` + manyResources(1_001) + `}}`),
			want: "more than the limit of 1000",
		},
		"long resource name": {body: asking(strings.Repeat("r", 507), `"1"`), want: "longer than 506"},
		"negative host port": {body: withSpec(`{"containers":[{"ports":[{"hostPort":-1}]}]}`), want: "hostPort -1"},
		"host port too high": {
			body: withSpec(`{"containers":[{"ports":[{"hostPort":65536}]}]}`),
			want: "hostPort 65536",
		},
		"container port too high": {
			body: withSpec(`{"hostNetwork":true,"containers":[{"ports":[{"containerPort":70000}]}]}`),
			want: "containerPort 70000",
		},
		"negative limit": {
			body: withSpec(`{"containers":[{"resources":{"limits":{"cpu":"-1"}}}]}`),
			want: "Pods[0]: spec.containers[0].resources.requests[cpu] is -1",
		},
		"resource nobody offers": {body: asking("example.com/gpu", `"1"`), status: http.StatusOK, want: "example.com/gpu"},
		"asks for everything":    {body: asking("memory", `"7E"`), status: http.StatusOK, want: "too little memory"},
	}
}

func hostileQueries() map[string]hostile {
	get := func(path, want string) hostile { return hostile{method: http.MethodGet, path: path, want: want} }
	missing := func(path, want string) hostile {
		return hostile{method: http.MethodGet, path: path, want: want, status: http.StatusNotFound}
	}
	return map[string]hostile{
		"unknown parameter":         get("/v1/nodes?overcomitted=true", "not known"),
		"parameter twice":           get("/v1/nodes?limit=1&limit=2", "send it once"),
		"limit is a word":           get("/v1/nodes?limit=all", "above 0"),
		"limit is 0":                get("/v1/allocations?limit=0", "above 0"),
		"overcommitted is a number": get("/v1/nodes?overcommitted=7", "neither true nor false"),
		"unknown state":             get("/v1/allocations?state=bound", "Binding, Bound"),
		"bad escape":                get("/v1/allocations?namespace=%zz", "query string"),
		"NUL in parameter":          get("/v1/allocations?namespace=%00", "unprintable"),
		"long parameter":            get("/v1/allocations?namespace="+strings.Repeat("n", 1025), "longer than 1024"),
		"query of a node":           get("/v1/nodes/node-1?claims=no", "takes none"),
		"unknown node":              missing("/v1/nodes/node-9", "not in the ledger"),
		"path as node":              missing("/v1/nodes/..%2f..%2fetc", "nothing is served"),
		"explain without pod":       get("/v1/explain?namespace=n", "is missing"),
		"explain unknown pod":       missing("/v1/explain?namespace=n&pod=ghost", "n/ghost"),
		"watch from a word":         get("/v1/watch?revision=now", "not a revision"),
		"watch from the future": {
			method: http.MethodGet, path: "/v1/watch?revision=999999", status: http.StatusGone,
			want: "without a revision",
		},
		"watch from long ago": {
			method: http.MethodGet, path: "/v1/watch?revision=1", status: http.StatusGone,
			want: "without a revision",
		},
		"watch after a bad event": {
			method: http.MethodGet, path: "/v1/watch", header: []string{"Last-Event-ID", "x"},
			want: "Last-Event-ID",
		},
		"reservations, limit -1": get("/v1/reservations?limit=-1", "above 0"),
		"query of the document":  get("/openapi.yaml?v=3", "takes none"),
		"reservations by a word": get("/v1/reservations?state=Bound", "not known"),
	}
}

func TestHostileRequests(t *testing.T) {
	f := newFixture(t, Limits{MaxBody: 1 << 20})
	before := f.ledger.Revision()
	for _, table := range []map[string]hostile{hostileForm(), hostileGangs(), hostilePods(), hostileQueries()} {
		for name, h := range table {
			t.Run(name, func(t *testing.T) { f.expectRefused(t, &h) })
		}
	}
	assert.Equal(t, before, f.ledger.Revision())
	assert.Empty(t, f.reserve(gangOf("node-1", aPod("a", "1", "1Gi"))).Error, "the server lives on")
	for _, e := range f.Logs.AllEntries() {
		assert.NotContains(t, e.Message, "panic")
	}
}

func (f *fixture) expectRefused(t *testing.T, h *hostile) {
	method, path, status := h.method, h.path, h.status
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = "/reserve"
	}
	if status == 0 {
		status = http.StatusBadRequest
	}
	before := f.ledger.Revision()
	w := f.serve(method, path, h.body, h.header...)
	reply := w.Body.Bytes()
	assert.Equal(t, status, w.Code, string(reply))
	var answer httpjson.ErrorBody
	require.NoError(t, json.Unmarshal(reply, &answer), string(reply))
	assert.NotEmpty(t, answer.Error)
	assert.Contains(t, string(reply), h.want)
	assert.Less(t, len(reply), 2000)
	assert.Equal(t, before, f.ledger.Revision())
}

func manyPods(n int) string {
	pods := make([]string, n)
	for i := range pods {
		pods[i] = fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"containers":[{}]}}`, i)
	}
	return "[" + strings.Join(pods, ",") + "]"
}

func manyResources(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`"example.com/r%d":"1"`, i)
	}
	return strings.Join(entries, ",")
}
