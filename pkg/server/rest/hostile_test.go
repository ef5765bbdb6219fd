package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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
		"no body":                   {body: "", want: "empty"},
		"only white space":          {body: " \n ", want: "empty"},
		"null":                      {body: "null", want: "null"},
		"not JSON":                  {body: "SchedulerName=s", want: "not valid JSON"},
		"an array":                  {body: "[]", want: "got an array"},
		"a string":                  {body: `"reserve"`, want: "got a string"},
		"half an object":            {body: `{"Pods": [`, want: "ends too early"},
		"two objects":               {body: with(`"Mode":"Partial"`) + "{}", want: "JSON"},
		"trailing comma":            {body: `{"SchedulerName":"s",}`, want: "not valid JSON"},
		"deep nesting in a pod":     {body: withPod(strings.Repeat(`{"a":`, 20_000)), want: "exceeded max depth"},
		"non-UTF-8 name":            {body: withPod("{\"metadata\":{\"name\":\"a\xff\"}}"), want: "UTF-8"},
		"lone surrogate":            {body: withPod(`{"metadata":{"name":"\ud800"}}`), want: "not valid JSON"},
		"huge body":                 {body: with(`"RequestID":"` + strings.Repeat("x", 2<<20) + `"`), status: http.StatusRequestEntityTooLarge, want: "larger than the limit"},
		"XML":                       {body: "<pods/>", header: []string{"Content-Type", "text/xml"}, status: http.StatusUnsupportedMediaType, want: "Content-Type"},
		"compressed":                {body: "\x1f\x8b", header: []string{"Content-Encoding", "gzip"}, status: http.StatusUnsupportedMediaType, want: "Content-Encoding"},
		"GET reserve":               {method: http.MethodGet, status: http.StatusMethodNotAllowed, want: "use"},
		"PUT unreserve":             {method: http.MethodPut, path: "/unreserve", body: with(`"DryRun":true`), status: http.StatusMethodNotAllowed, want: "use"},
		"POST nodes":                {path: "/v1/nodes", body: "{}", status: http.StatusMethodNotAllowed, want: "use"},
		"DELETE allocations":        {method: http.MethodDelete, path: "/v1/allocations", status: http.StatusMethodNotAllowed, want: "use"},
		"unknown path":              {path: "/reserve/now", body: "{}", status: http.StatusNotFound, want: "nothing is served"},
		"unknown field":             {body: with(`"DryRunn":true`), want: `\"DryRunn\" is not known`},
		"Pods is an object":         {body: `{"SchedulerName":"s","Nodes":["node-1"],"Pods":{}}`, want: "want an array"},
		"Pods holds strings":        {body: withPod(`"a"`), want: "field /Pods/0"},
		"Nodes is a string":         {body: `{"SchedulerName":"s","Nodes":"node-1","Pods":[` + goodPod + `]}`, want: "want an array"},
		"Nodes holds numbers":       {body: `{"SchedulerName":"s","Nodes":[1],"Pods":[` + goodPod + `]}`, want: "want a string"},
		"SchedulerName is a number": {body: `{"SchedulerName":7}`, want: "want a string"},
		"DryRun is a string":        {body: with(`"DryRun":"yes"`), want: "want true or false"},
		"TTLSeconds is a string":    {body: with(`"TTLSeconds":"60"`), want: "want a whole number"},
		"TTLSeconds is a fraction":  {body: with(`"TTLSeconds":1.5`), want: "want a whole number"},
		"MinRevision is negative":   {body: with(`"MinRevision":-1`), want: "not negative"},
		"MinRevision overflows":     {body: with(`"MinRevision":18446744073709551616`), want: "out of range"},
	}
}

func hostileGangs() map[string]hostile {
	return map[string]hostile{
		"no scheduler":               {body: `{"Nodes":["node-1"],"Pods":[` + goodPod + `]}`, want: "SchedulerName is missing"},
		"long scheduler":             {body: `{"SchedulerName":"` + strings.Repeat("s", 300) + `"}`, want: "longer than 253"},
		"NUL in scheduler":           {body: `{"SchedulerName":"s\u0000"}`, want: "unprintable"},
		"no pods":                    {body: `{"SchedulerName":"s"}`, want: "Pods is empty"},
		"null pods":                  {body: `{"SchedulerName":"s","Pods":null,"Nodes":null}`, want: "Pods is empty"},
		"empty pods":                 {body: `{"SchedulerName":"s","Pods":[],"Nodes":[]}`, want: "Pods is empty"},
		"a null pod":                 {body: withPod("null"), want: "Pods[0]: metadata.name is missing"},
		"more pods than nodes":       {body: withPod(goodPod + `,{"metadata":{"name":"b"},"spec":{"containers":[{}]}}`), want: "1 names for 2 pods"},
		"more nodes than pods":       {body: `{"SchedulerName":"s","Nodes":["node-1","node-2"],"Pods":[` + goodPod + `]}`, want: "2 names for 1 pods"},
		"no nodes":                   {body: `{"SchedulerName":"s","Pods":[` + goodPod + `]}`, want: "0 names for 1 pods"},
		"too many pods":              {body: `{"SchedulerName":"s","Pods":` + repeated(10_001, "{}") + `}`, want: "more than the limit of 10000"},
		"too many nodes":             {body: `{"SchedulerName":"s","Nodes":` + repeated(10_001, `"n"`) + `}`, want: "more than the limit of 10000"},
		"the same pod twice":         {body: `{"SchedulerName":"s","Nodes":["node-1","node-2"],"Pods":[` + goodPod + "," + goodPod + `]}`, want: "Pods[1] is n/a, as is Pods[0]"},
		"the same UID twice":         {body: `{"SchedulerName":"s","Nodes":["node-1","node-2"],"Pods":[` + goodPod + "," + strings.Replace(goodPod, `"a"`, `"b"`, 1) + `]}`, want: "metadata.uid of Pods[0]"},
		"unknown mode":               {body: with(`"Mode":"allornothing"`), want: `Mode \"allornothing\" is not known`},
		"negative TTL":               {body: with(`"TTLSeconds":-1`), want: "TTLSeconds is -1"},
		"absurd TTL":                 {body: with(`"TTLSeconds":9223372036854775807`), want: "more than ten years"},
		"TTL beyond the policy":      {body: with(`"TTLSeconds":90000`), want: "longer than the 24h0m0s that the policy allows"},
		"long RequestID":             {body: with(`"RequestID":"` + strings.Repeat("r", 201) + `"`), want: "longer than 200"},
		"NUL in RequestID":           {body: with(`"RequestID":"\u0000"`), want: "unprintable"},
		"durable, without the kind":  {body: with(`"Durable":true`), status: http.StatusOK, want: "install manifests/crd"},
		"durable is a string":        {body: with(`"Durable":"yes"`), want: "want true or false"},
		"name in memory":             {body: with(`"Name":"r"`), want: "this one is kept in memory"},
		"namespace in memory":        {body: with(`"Namespace":"n","Durable":false`), want: "this one is kept in memory"},
		"durable as NUL":             {body: with(`"Durable":true,"Name":"r\u0000"`), want: `Name \"`},
		"durable as a path":          {body: with(`"Durable":true,"Name":"../r"`), want: `Name \"`},
		"durable as a long name":     {body: with(`"Durable":true,"Name":"` + strings.Repeat("r", 254) + `"`), want: `Name \"`},
		"name is a number":           {body: with(`"Durable":true,"Name":7`), want: "want a string"},
		"durable in another place":   {body: with(`"Durable":true,"Namespace":"m"`), want: "a reservation is in the namespace of its pods"},
		"reserve a reservation":      {body: with(`"Reservation":"n/r"`), want: "Reservation does not apply"},
		"whatif of a reservation":    {path: "/v1/whatif", body: with(`"Reservation":"n/r"`), want: "Reservation does not apply"},
		"whatif with a name":         {path: "/v1/whatif", body: with(`"Name":"r"`), want: "Name, as Namespace, does not apply"},
		"unreserve by name":          {path: "/unreserve", body: with(`"Name":"r"`), want: "Name, as Namespace, does not apply"},
		"unreserve both":             {path: "/unreserve", body: with(`"Reservation":"n/r"`), want: "Pods and Reservation are both given"},
		"unreserve no name":          {path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/"}`, want: "not of the form namespace/name"},
		"unreserve no namespace":     {path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"r"}`, want: "not of the form namespace/name"},
		"unreserve a slot":           {path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/r/a"}`, want: "not of the form namespace/name"},
		"unreserve a path":           {path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"../../r"}`, want: "not of the form namespace/name"},
		"unreserve NUL":              {path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/r\u0000"}`, want: "not of the form namespace/name"},
		"unreserve, without a store": {path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/r"}`, status: http.StatusOK, want: "install manifests/crd"},
		"unreserve nodes alone":      {path: "/unreserve", body: `{"SchedulerName":"s","Reservation":"n/r","Nodes":["node-1"]}`, want: "1 names for 0 pods"},
		"unreserve as a dry run":     {path: "/unreserve", body: with(`"DryRun":true`), want: "DryRun does not apply"},
		"unreserve with a mode":      {path: "/unreserve", body: with(`"Mode":"Partial"`), want: "Mode does not apply"},
		"unreserve with a TTL":       {path: "/unreserve", body: with(`"TTLSeconds":5`), want: "TTLSeconds does not apply"},
		"unreserve nothing":          {path: "/unreserve", body: `{"SchedulerName":"s"}`, want: "Pods is empty"},
		"reserve without":            {body: with(`"Without":[{"Name":"x"}]`), want: "/v1/whatif"},
		"unknown node":               {body: `{"SchedulerName":"s","Nodes":["node-9"],"Pods":[` + goodPod + `]}`, status: http.StatusOK, want: "not in the ledger"},
		"node of upper case":         {body: `{"SchedulerName":"s","Nodes":["Node-1"],"Pods":[` + goodPod + `]}`, want: "Nodes[0]"},
		"empty node":                 {body: `{"SchedulerName":"s","Nodes":[""],"Pods":[` + goodPod + `]}`, want: "Nodes[0]"},
		"NUL in node":                {body: `{"SchedulerName":"s","Nodes":["node\u0000"],"Pods":[` + goodPod + `]}`, want: "Nodes[0]"},
		"path as node":               {body: `{"SchedulerName":"s","Nodes":["../node-1"],"Pods":[` + goodPod + `]}`, want: "Nodes[0]"},
		"too many pods to propose":   {path: "/v1/whatif", body: `{"Pods":` + manyPods(1_001) + `}`, want: "the limit without Nodes is 1000"},
		"whatif without whom":        {path: "/v1/whatif", body: with(`"Without":[{"Name":"ghost"}]`), want: "Without[0]: no pod default/ghost"},
		"whatif without nothing":     {path: "/v1/whatif", body: with(`"Without":[{}]`), want: "Without[0]: metadata.name is missing"},
	}
}

func hostilePods() map[string]hostile {
	return map[string]hostile{
		"no name":                 {body: withPod(`{"metadata":{"uid":"u"}}`), want: "Pods[0]: metadata.name is missing"},
		"NUL in name":             {body: withPod(`{"metadata":{"name":"a\u0000b"}}`), want: `Pods[0]: metadata.name`},
		"slash in name":           {body: withPod(`{"metadata":{"name":"a/b"}}`), want: `Pods[0]: metadata.name`},
		"long name":               {body: withPod(`{"metadata":{"name":"` + strings.Repeat("a", 254) + `"}}`), want: `Pods[0]: metadata.name`},
		"dot in namespace":        {body: withPod(`{"metadata":{"name":"a","namespace":"n.n"}}`), want: `Pods[0]: metadata.namespace`},
		"long UID":                {body: withPod(`{"metadata":{"name":"a","uid":"` + strings.Repeat("u", 129) + `"}}`), want: "metadata.uid"},
		"NUL in UID":              {body: withPod(`{"metadata":{"name":"a","uid":"\u0000"}}`), want: "metadata.uid"},
		"name is a number":        {body: withPod(`{"metadata":{"name":1}}`), want: "/Pods/0/metadata/name"},
		"on another node":         {body: withSpec(`{"nodeName":"node-2","containers":[{}]}`), want: "spec.nodeName"},
		"negative CPU":            {body: asking("cpu", `"-1"`), want: "Pods[0]: spec.containers[0].resources.requests[cpu] is -1"},
		"negative overhead":       {body: withSpec(`{"overhead":{"memory":"-1Gi"},"containers":[{}]}`), want: "Pods[0]: spec.overhead[memory]"},
		"negative of init":        {body: withSpec(`{"initContainers":[{"resources":{"requests":{"cpu":"-1m"}}}],"containers":[{}]}`), want: "spec.initContainers[0]"},
		"overflowing CPU":         {body: asking("cpu", `"9223372036854775807"`), want: "too large"},
		"overflowing memory":      {body: asking("memory", `"9000E"`), want: "too large"},
		"overflowing sum":         {body: withSpec(`{"containers":` + repeated(2, `{"resources":{"requests":{"memory":"9E"}}}`) + `}`), want: "too large"},
		"huge exponent":           {body: asking("memory", `"1e30000000"`), want: "exponent"},
		"tiny exponent":           {body: asking("memory", `"0.1e-30000000"`), want: "exponent"},
		"exponent beyond int64":   {body: asking("memory", `"1e99999999999999999999999"`), want: "exponent"},
		"long quantity":           {body: asking("cpu", `"`+strings.Repeat("1", 100)+`"`), want: "longer than 64"},
		"not a quantity":          {body: asking("cpu", `"lots"`), want: "quantity is not usable"},
		"quantity is an object":   {body: asking("cpu", `{}`), want: "want a quantity"},
		"requests is an array":    {body: withSpec(`{"containers":[{"resources":{"requests":[]}}]}`), want: "want an object"},
		"containers is a string":  {body: withSpec(`{"containers":"c"}`), want: "want an array"},
		"too many containers":     {body: withSpec(`{"containers":` + repeated(1_001, "{}") + `}`), want: "more than the limit of 1000"},
		"too many tolerations":    {body: withSpec(`{"containers":[{}],"tolerations":` + repeated(1_001, "{}") + `}`), want: "more than the limit of 1000"},
		"too many resources":      {body: withSpec(`{"containers":[{}],"overhead":{` + manyResources(1_001) + `}}`), want: "more than the limit of 1000"},
		"long resource name":      {body: asking(strings.Repeat("r", 507), `"1"`), want: "longer than 506"},
		"negative host port":      {body: withSpec(`{"containers":[{"ports":[{"hostPort":-1}]}]}`), want: "hostPort -1"},
		"host port too high":      {body: withSpec(`{"containers":[{"ports":[{"hostPort":65536}]}]}`), want: "hostPort 65536"},
		"container port too high": {body: withSpec(`{"hostNetwork":true,"containers":[{"ports":[{"containerPort":70000}]}]}`), want: "containerPort 70000"},
		"negative limit":          {body: withSpec(`{"containers":[{"resources":{"limits":{"cpu":"-1"}}}]}`), want: "Pods[0]: spec.containers[0].resources.requests[cpu] is -1"},
		"host port overflows":     {body: withSpec(`{"containers":[{"ports":[{"hostPort":4294967376}]}]}`), want: "out of range"},
		"priority is a string":    {body: withSpec(`{"priority":"high","containers":[{}]}`), want: "/Pods/0/spec/priority"},
		"resource nobody offers":  {body: asking("example.com/gpu", `"1"`), status: http.StatusOK, want: "example.com/gpu"},
		"asks for everything":     {body: asking("memory", `"7E"`), status: http.StatusOK, want: "too little memory"},
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
		"limit overflows":           get("/v1/allocations?limit=99999999999999999999", "above 0"),
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
		"watch from below 0":        get("/v1/watch?revision=-1", "not a revision"),
		"watch from the future":     {method: http.MethodGet, path: "/v1/watch?revision=999999", status: http.StatusGone, want: "without a revision"},
		"watch from long ago":       {method: http.MethodGet, path: "/v1/watch?revision=1", status: http.StatusGone, want: "without a revision"},
		"watch after a bad event":   {method: http.MethodGet, path: "/v1/watch", header: []string{"Last-Event-ID", "x"}, want: "Last-Event-ID"},
		"reservations by a word":    get("/v1/reservations?state=Bound", "not known"),
		"reservations, limit -1":    get("/v1/reservations?limit=-1", "above 0"),
		"NUL in a reservation":      get("/v1/reservations?name=%00", "unprintable"),
		"query of the document":     get("/openapi.yaml?v=3", "takes none"),
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
	assert.Empty(t, f.reserve(gang1(aPod("a", "1", "1Gi"), "node-1")).Error, "the server lives on")
	for _, e := range f.Logs.AllEntries() {
		assert.NotContains(t, e.Message, "panic")
	}
}

// quickly is how long an answer takes at most, on a machine that others use, too.
const quickly = 20 * time.Second

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
	start := time.Now()
	var got int
	var reply []byte
	if status == http.StatusRequestEntityTooLarge {
		// Not over a connection: a client that still writes when the server closes may see that before the answer.
		w := serve(f, method, path, []byte(h.body))
		got, reply = w.Code, w.Body.Bytes()
	} else {
		got, reply = f.send(method, path, strings.NewReader(h.body), h.header...)
	}
	assert.Equal(t, status, got, string(reply))
	var answer httpjson.ErrorBody
	require.NoError(t, json.Unmarshal(reply, &answer), string(reply))
	assert.NotEmpty(t, answer.Error)
	assert.Contains(t, string(reply), h.want)
	assert.Less(t, len(reply), 2000)
	assert.Equal(t, before, f.ledger.Revision())
	assert.Less(t, time.Since(start), quickly)
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
