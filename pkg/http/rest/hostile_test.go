package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
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

// on is a request for some pods, each on the node at its place, with the given JSON of both, and more fields.
func on(nodes, pods string, more ...string) string {
	fields := append([]string{`{"SchedulerName":"s","Nodes":` + nodes, `"Pods":` + pods}, more...)
	return strings.Join(fields, ",") + "}"
}

// withPod is a request for one pod with the given JSON.
func withPod(pod string) string { return on(`["node-1"]`, "["+pod+"]") }

// named is a request for one pod with the given JSON of its metadata.
func named(metadata string) string { return withPod(`{"metadata":{` + metadata + `}}`) }

// withSpec is a request for one pod with the given JSON of its spec.
func withSpec(spec string) string {
	return withPod(`{"metadata":{"name":"a","namespace":"n","uid":"u"},"spec":` + spec + `}`)
}

// asking is a request for one pod that asks for a quantity, given in JSON.
func asking(name, quantity string) string {
	return withSpec(fmt.Sprintf(`{"containers":[{"resources":{"requests":{%q:%s}}}]}`, name, quantity))
}

// withPortOf is a request for one pod with the given JSON of a port.
func withPortOf(port string) string {
	return withSpec(`{"hostNetwork":true,"containers":[{"ports":[{` + port + `}]}]}`)
}

const goodPod = `{"metadata":{"name":"a","namespace":"n","uid":"u"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`

// with is a request for one good pod, and more fields.
func with(fields string) string { return on(`["node-1"]`, "["+goodPod+"]", fields) }

// repeated repeats an element of a JSON array.
func repeated(n int, element string) string {
	return "[" + strings.Repeat(element+",", n-1) + element + "]"
}

func hostileForm() map[string]hostile {
	return map[string]hostile{
		"an array":    {body: "[]", want: "got an array"},
		"two objects": {body: with(`"Mode":"Partial"`) + "{}", want: "JSON"},
		"huge body": {
			body:   with(`"RequestID":"` + strings.Repeat("x", maxBody) + `"`),
			status: http.StatusRequestEntityTooLarge, want: "larger than the limit",
		},
		"XML": {
			body: "<pods/>", header: []string{"Content-Type", "text/xml"},
			status: http.StatusUnsupportedMediaType, want: "Content-Type",
		},
		"GET reserve":             {method: http.MethodGet, status: http.StatusMethodNotAllowed, want: "use"},
		"unknown field":           {body: with(`"DryRunn":true`), want: `\"DryRunn\" is not known`},
		"Pods is an object":       {body: on(`["node-1"]`, "{}"), want: "want an array"},
		"Pods holds strings":      {body: withPod(`"a"`), want: "field /Pods/0"},
		"Nodes is a string":       {body: on(`"node-1"`, "["+goodPod+"]"), want: "want an array"},
		"Nodes holds numbers":     {body: on(`[1]`, "["+goodPod+"]"), want: "want a string"},
		"MinRevision is negative": {body: with(`"MinRevision":-1`), want: "not negative"},
	}
}

func hostileGangs() map[string]hostile {
	const notThere, bareName = "install manifests/crd", "Name, as Namespace, does not apply"
	const limit = "more than the limit of 10000"
	const twoNodes, notAName = `["node-1","node-2"]`, "not of the form namespace/name"
	another := strings.Replace(goodPod, `"a"`, `"b"`, 1)
	back := func(fields string) string { return `{"SchedulerName":"s",` + fields + `}` }
	table := map[string]hostile{
		"no scheduler":              {body: `{"Nodes":["node-1"],"Pods":[` + goodPod + `]}`, want: "SchedulerName is missing"},
		"long scheduler":            {body: `{"SchedulerName":"` + strings.Repeat("s", 300) + `"}`, want: "longer than 253"},
		"NUL in scheduler":          {body: `{"SchedulerName":"s\u0000"}`, want: "unprintable"},
		"no pods":                   {body: `{"SchedulerName":"s"}`, want: "Pods is empty"},
		"a null pod":                {body: withPod("null"), want: "Pods[0]: metadata.name is missing"},
		"more pods than nodes":      {body: withPod(goodPod + `,{"metadata":{"name":"b"}}`), want: "1 names for 2 pods"},
		"too many pods":             {body: on("[]", repeated(10_001, "{}")), want: limit},
		"too many nodes":            {body: on(repeated(10_001, `"n"`), "[]"), want: limit},
		"the same pod twice":        {body: on(twoNodes, repeated(2, goodPod)), want: "Pods[1] is n/a, as is Pods[0]"},
		"the same UID twice":        {body: on(twoNodes, "["+goodPod+","+another+"]"), want: "metadata.uid of Pods[0]"},
		"unknown mode":              {body: with(`"Mode":"allornothing"`), want: `Mode \"allornothing\" is not known`},
		"negative TTL":              {body: with(`"TTLSeconds":-1`), want: "TTLSeconds is -1"},
		"absurd TTL":                {body: with(`"TTLSeconds":9223372036854775807`), want: "more than ten years"},
		"TTL beyond the policy":     {body: with(`"TTLSeconds":90000`), want: "longer than the 24h0m0s that the policy allows"},
		"NUL in RequestID":          {body: with(`"RequestID":"\u0000"`), want: "unprintable"},
		"long RequestID":            {body: with(`"RequestID":"` + strings.Repeat("r", 201) + `"`), want: "longer than 200"},
		"durable, without the kind": {body: with(`"Durable":true`), status: http.StatusOK, want: notThere},
		"name in memory":            {body: with(`"Name":"r"`), want: "this one is kept in memory"},
		"durable as a path":         {body: with(`"Durable":true,"Name":"../r"`), want: `Name \"`},
		"durable in another place": {
			body: with(`"Durable":true,"Namespace":"m"`), want: "a reservation is in the namespace of its pods",
		},
		"reserve a reservation": {body: with(`"Reservation":"n/r"`), want: "Reservation does not apply"},
		"reserve without":       {body: with(`"Without":[{"Name":"x"}]`), want: "/v1/whatif"},
		"unknown node":          {body: on(`["node-9"]`, "["+goodPod+"]"), status: http.StatusOK, want: "not in the ledger"},
		"node of upper case":    {body: on(`["Node-1"]`, "["+goodPod+"]"), want: "Nodes[0]"},
	}
	for path, some := range map[string]map[string]hostile{"/unreserve": {
		"by name":         {body: with(`"Name":"r"`), want: bareName},
		"both":            {body: with(`"Reservation":"n/r"`), want: "Pods and Reservation are both given"},
		"no name":         {body: back(`"Reservation":"n/"`), want: notAName},
		"a path":          {body: back(`"Reservation":"../../r"`), want: notAName},
		"without a store": {body: back(`"Reservation":"n/r"`), status: http.StatusOK, want: notThere},
		"nodes alone":     {body: back(`"Reservation":"n/r","Nodes":["node-1"]`), want: "1 names for 0 pods"},
		"as a dry run":    {body: with(`"DryRun":true`), want: "DryRun does not apply"},
		"with a mode":     {body: with(`"Mode":"Partial"`), want: "Mode does not apply"},
		"with a TTL":      {body: with(`"TTLSeconds":5`), want: "TTLSeconds does not apply"},
		"nothing":         {body: `{"SchedulerName":"s"}`, want: "Pods is empty"},
	}, "/v1/whatif": {
		"of a reservation": {body: with(`"Reservation":"n/r"`), want: "Reservation does not apply"},
		"with a name":      {body: with(`"Name":"r"`), want: bareName},
		"of too many pods": {
			body: `{"Pods":[` + numbered(1_001, `{"metadata":{"name":"p%d"},"spec":{"containers":[{}]}}`) + "]}",
			want: "the limit without Nodes is 1000",
		},
		"without whom":    {body: with(`"Without":[{"Name":"ghost"}]`), want: "Without[0]: no pod default/ghost"},
		"without nothing": {body: with(`"Without":[{}]`), want: "Without[0]: metadata.name is missing"},
	}} {
		for name, h := range some {
			h.path = path
			table[path+" "+name] = h
		}
	}
	return table
}

func hostilePods() map[string]hostile {
	const metadata, limit = "Pods[0]: metadata.name", "more than the limit of 1000"
	const negative = "Pods[0]: spec.containers[0].resources.requests[cpu] is -1"
	return map[string]hostile{
		"no name":          {body: named(`"uid":"u"`), want: metadata + " is missing"},
		"NUL in name":      {body: named(`"name":"a\u0000b"`), want: metadata},
		"slash in name":    {body: named(`"name":"a/b"`), want: metadata},
		"long name":        {body: named(`"name":"` + strings.Repeat("a", 254) + `"`), want: metadata},
		"dot in namespace": {body: named(`"name":"a","namespace":"n.n"`), want: metadata + "space"},
		"NUL in UID":       {body: named(`"name":"a","uid":"\u0000"`), want: "metadata.uid"},
		"long UID":         {body: named(`"name":"a","uid":"` + strings.Repeat("u", 129) + `"`), want: "metadata.uid"},
		"on another node":  {body: withSpec(`{"nodeName":"node-2","containers":[{}]}`), want: "spec.nodeName"},
		"negative CPU":     {body: asking("cpu", `"-1"`), want: negative},
		"overflowing CPU":  {body: asking("cpu", `"9223372036854775807"`), want: "too large"},
		"overflowing sum": {
			body: withSpec(`{"containers":` + repeated(2, `{"resources":{"requests":{"memory":"9E"}}}`) + `}`),
			want: "too large",
		},
		"huge exponent":         {body: asking("memory", `"1e30000000"`), want: "exponent"},
		"long quantity":         {body: asking("cpu", `"`+strings.Repeat("1", 100)+`"`), want: "longer than 64"},
		"not a quantity":        {body: asking("cpu", `"lots"`), want: "quantity is not usable"},
		"quantity is an object": {body: asking("cpu", `{}`), want: "want a quantity"},
		"too many containers":   {body: withSpec(`{"containers":` + repeated(1_001, "{}") + `}`), want: limit},
		"too many tolerations": {
			body: withSpec(`{"containers":[{}],"tolerations":` + repeated(1_001, "{}") + `}`), want: limit,
		},
		"too many resources": {
			body: withSpec(`{"containers":[{}],"overhead":{` + numbered(1_001, `"example.com/r%d":"1"`) + `}}`), want: limit,
		},
		"long resource name":      {body: asking(strings.Repeat("r", 507), `"1"`), want: "longer than 506"},
		"negative host port":      {body: withPortOf(`"hostPort":-1`), want: "hostPort -1"},
		"host port too high":      {body: withPortOf(`"hostPort":65536`), want: "hostPort 65536"},
		"container port too high": {body: withPortOf(`"containerPort":70000`), want: "containerPort 70000"},
		"negative limit":          {body: withSpec(`{"containers":[{"resources":{"limits":{"cpu":"-1"}}}]}`), want: negative},
		"resource nobody offers":  {body: asking("example.com/gpu", `"1"`), status: http.StatusOK, want: "example.com/gpu"},
		"asks for everything":     {body: asking("memory", `"7E"`), status: http.StatusOK, want: "too little memory"},
	}
}

func hostileQueries() map[string]hostile {
	get := func(path, want string) hostile { return hostile{method: http.MethodGet, path: path, want: want} }
	missing := func(path, want string) hostile {
		return hostile{method: http.MethodGet, path: path, want: want, status: http.StatusNotFound}
	}
	gone := func(path string) hostile {
		return hostile{method: http.MethodGet, path: path, want: "without a revision", status: http.StatusGone}
	}
	return map[string]hostile{
		"query of a comparison":     get("/debug/diff?node=a", "takes none"),
		"pods that wait for tea":    get("/v1/pending?waits=tea", "send one of [server permission"),
		"gangs by half":             get("/v1/gangs?state=half", "Incomplete Waiting Starting Short Whole"),
		"refusals after a word":     get("/v1/refusals?after=x", "send the After of an answer"),
		"nodes by a bad selector":   get("/v1/nodes?labelSelector=a%3D%3D%3Db", "kubectl get nodes -l"),
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
		"watch from the future":     gone("/v1/watch?revision=999999"),
		"watch from long ago":       gone("/v1/watch?revision=1"),
		"reservations, limit -1":    get("/v1/reservations?limit=-1", "above 0"),
		"query of the document":     get("/openapi.yaml?v=3", "takes none"),
		"reservations by a word":    get("/v1/reservations?state=Bound", "not known"),
	}
}

func TestHostileRequests(t *testing.T) {
	f := newFixture(t, Limits{})
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
	method, path := cmp.Or(h.method, http.MethodPost), cmp.Or(h.path, "/reserve")
	status := cmp.Or(h.status, http.StatusBadRequest)
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

// numbered is a list of what a format makes of the numbers.
func numbered(n int, format string) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(entries, ",")
}
