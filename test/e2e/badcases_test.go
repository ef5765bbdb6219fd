//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// badRequest is a request that must be refused. Without a method it is a POST.
type badRequest struct {
	method, path string
	body         string
	header       map[string]string
	// status is what it is refused with; 0 means 400. A 200 stands for the protocol's way to refuse:
	// status 200 and a text in the field Error.
	status int
}

// bindLimit is the longest body of a bind, which only names a pod and a node.
const bindLimit = 64 << 10

// pods of requests: ok is one that nothing is wrong with.
const (
	okMeta  = `"metadata":{"namespace":"default","name":"bad","uid":"11111111-1111-1111-1111-111111111111"}`
	okSpec  = `"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}`
	okPod   = `{` + okMeta + `,` + okSpec + `}`
	okNodes = `["node-0"]`
)

func podWith(meta, spec string) string { return `{` + meta + `,` + spec + `}` }

func podAsking(resource, quantity string) string {
	return podWith(okMeta, fmt.Sprintf(`"spec":{"containers":[{"name":"c","resources":{"requests":{%q:%s}}}]}`, resource, quantity))
}

func podNamed(name string) string {
	return podWith(`"metadata":{"namespace":"default","name":`+name+`,"uid":"u"}`, okSpec)
}

func gang(pods, nodes string) string {
	return `{"SchedulerName":"s","Pods":[` + pods + `],"Nodes":` + nodes + `}`
}

func gangWith(field string) string {
	return `{"SchedulerName":"s","Pods":[` + okPod + `],"Nodes":` + okNodes + `,` + field + `}`
}

func candidates(pod, nodes string) string { return `{"Pod":` + pod + `,"NodeNames":` + nodes + `}` }

func binding(namespace, name, uid, node string) string {
	return fmt.Sprintf(`{"PodNamespace":%s,"PodName":%s,"PodUID":%s,"Node":%s}`, namespace, name, uid, node)
}

func repeated(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+",", n), ",")
}

// badRequests returns all of them by what is wrong.
func badRequests() map[string]badRequest {
	all := map[string]badRequest{}
	for _, part := range []map[string]badRequest{
		badJSON(), badGangs(), badQuantities(), badNames(), badExtenderCalls(), badBinds(), badReads(), badMethods(),
	} {
		for name, request := range part {
			all[name] = request
		}
	}
	return all
}

// badJSON sends to every route that reads a body what no route can read.
func badJSON() map[string]badRequest {
	bodies := map[string]badRequest{
		"no body at all":            {body: ""},
		"null":                      {body: "null"},
		"an array":                  {body: "[]"},
		"a string":                  {body: `"pods"`},
		"a number beyond all types": {body: "1e999999999"},
		"cut off in the middle":     {body: `{"SchedulerName":"s","Pod":{"metadata":{"name":"x`},
		"two objects":               {body: `{}{}`},
		"text behind the object":    {body: `{} and more`},
		"XML":                       {body: `<pods/>`},
		"bytes that are no UTF-8":   {body: "{\"SchedulerName\":\"\xff\xfe\",\"PodName\":\"\xff\",\"Pod\":{\"metadata\":{\"name\":\"\xff\"}}}"},
		"nested 100,000 deep":       {body: strings.Repeat(`{"Pod":`, 100_000)},
		"arrays 100,000 deep":       {body: `{"Pods":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`},
		"another content type":      {body: `{}`, header: map[string]string{"Content-Type": "text/html"}, status: http.StatusUnsupportedMediaType},
		"a compressed body":         {body: "\x1f\x8b\x08", header: map[string]string{"Content-Encoding": "gzip"}, status: http.StatusUnsupportedMediaType},
		"a form":                    {body: "a=b", header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, status: http.StatusUnsupportedMediaType},
		"a body of 33 MiB":          {body: `{"x":"` + string(bytes.Repeat([]byte{'x'}, 33<<20)) + `"}`, status: http.StatusRequestEntityTooLarge},
	}
	all := map[string]badRequest{}
	for _, path := range []string{testbed.FilterPath, testbed.PrioritizePath, testbed.PreemptPath, testbed.BindPath, testbed.ReservePath, testbed.UnreservePath, testbed.WhatIfPath} {
		for name, request := range bodies {
			request.path = path
			if path == testbed.BindPath && len(request.body) > bindLimit {
				request.status = http.StatusRequestEntityTooLarge
			}
			all[path+": "+name] = request
		}
	}
	return all
}

func badGangs() map[string]badRequest {
	bodies := map[string]string{
		"no pods":                          gang("", okNodes),
		"pods are null":                    `{"SchedulerName":"s","Pods":null,"Nodes":["node-0"]}`,
		"pods are an object":               `{"SchedulerName":"s","Pods":{},"Nodes":["node-0"]}`,
		"a pod is a string":                gang(`"bad"`, okNodes),
		"a pod is null":                    gang(`null`, okNodes),
		"fewer nodes than pods":            gang(okPod+`,`+podNamed(`"other"`), okNodes),
		"more nodes than pods":             gang(okPod, `["node-0","node-1"]`),
		"nodes are numbers":                gang(okPod, `[0]`),
		"a node without a name":            gang(okPod, `[""]`),
		"a node's name with a NUL":         gang(okPod, `["node-0\u0000"]`),
		"a node's name is a path":          gang(okPod, `["../../etc/passwd"]`),
		"the same pod twice":               gang(okPod+`,`+okPod, `["node-0","node-1"]`),
		"two pods with one UID":            gang(podWith(`"metadata":{"name":"a","uid":"u"}`, okSpec)+`,`+podWith(`"metadata":{"name":"b","uid":"u"}`, okSpec), `["node-0","node-0"]`),
		"a field nobody knows":             gangWith(`"Mood":"AllOrNothing"`),
		"a TTL as text":                    gangWith(`"TTLSeconds":"60"`),
		"a request id of 10,000 bytes":     gangWith(`"RequestID":"` + strings.Repeat("x", 10_000) + `"`),
		"a request id with a line break":   gangWith(`"RequestID":"a\nb"`),
		"a revision below 0":               gangWith(`"MinRevision":-1`),
		"a scheduler's name of 1 MiB":      `{"SchedulerName":"` + strings.Repeat("x", 1<<20) + `","Pods":[` + okPod + `],"Nodes":["node-0"]}`,
		"a scheduler's name with a NUL":    `{"SchedulerName":"s\u0000","Pods":[` + okPod + `],"Nodes":["node-0"]}`,
		"more pods than the limit":         gang(repeated(`{}`, 10_001), okNodes),
		"more nodes than the limit":        gang(okPod, `[`+repeated(`"n"`, 10_001)+`]`),
		"durable neither yes nor no":       gangWith(`"Durable":"perhaps"`),
		"pods with names only, five times": gang(repeated(`{"metadata":{"name":"x"}}`, 5), `[`+repeated(`"node-0"`, 5)+`]`),
	}
	all := map[string]badRequest{}
	for _, path := range []string{testbed.ReservePath, testbed.UnreservePath, testbed.WhatIfPath} {
		for name, body := range bodies {
			all[path+": "+name] = badRequest{path: path, body: body}
		}
	}
	reserveOnly := map[string]string{
		"no scheduler's name":       `{"Pods":[` + okPod + `],"Nodes":["node-0"]}`,
		"no nodes":                  `{"SchedulerName":"s","Pods":[` + okPod + `]}`,
		"a TTL below 0":             gangWith(`"TTLSeconds":-1`),
		"a TTL of 300 years":        gangWith(`"TTLSeconds":9460800000`),
		"a TTL beyond the policy's": gangWith(`"TTLSeconds":86401`),
		"an unknown mode":           gangWith(`"Mode":"Some"`),
		"pods to be gone":           gangWith(`"Without":[{"Name":"x"}]`),
		"another node in spec":      gang(podWith(okMeta, `"spec":{"nodeName":"node-1","containers":[{"name":"c"}]}`), okNodes),
	}
	for name, body := range reserveOnly {
		all[testbed.ReservePath+": "+name] = badRequest{path: testbed.ReservePath, body: body}
	}
	for name, body := range map[string]string{
		"a node nobody knows": gang(okPod, `["no-such-node"]`),
		"more than a node":    gang(podAsking("cpu", `"1000"`), okNodes),
		"no such resource":    gang(podAsking("example.com/none", `"1"`), okNodes),
	} {
		all[testbed.ReservePath+": "+name] = badRequest{path: testbed.ReservePath, body: body, status: http.StatusOK}
	}
	return all
}

func badQuantities() map[string]badRequest {
	quantities := map[string]string{
		"negative":                    `"-1"`,
		"beyond 64 bits":              `"9223372036854775808"`,
		"far beyond 64 bits":          `"99999999999999999999999999999999"`,
		"with an exponent of billion": `"1e1000000000"`,
		"with a small exponent":       `"1e-1000000000"`,
		"no number":                   `"plenty"`,
		"empty":                       `""`,
		"of 10,000 digits":            `"` + strings.Repeat("9", 10_000) + `"`,
		"an object":                   `{"value":1}`,
		"NaN":                         `"NaN"`,
		"with a NUL":                  `"1\u0000"`,
	}
	all := map[string]badRequest{}
	for name, quantity := range quantities {
		pod := podAsking("cpu", quantity)
		all[testbed.ReservePath+": a quantity "+name] = badRequest{path: testbed.ReservePath, body: gang(pod, okNodes)}
		all[testbed.WhatIfPath+": a quantity "+name] = badRequest{path: testbed.WhatIfPath, body: gang(pod, okNodes)}
	}
	huge := `"9223372036854775807"`
	sum := podWith(okMeta, `"spec":{"containers":[`+repeated(`{"name":"c","resources":{"requests":{"memory":`+huge+`}}}`, 9)+`]}`)
	all[testbed.ReservePath+": quantities that overflow together"] = badRequest{path: testbed.ReservePath, body: gang(sum, okNodes)}
	for name, spec := range map[string]string{
		"a host port above 65535": `"spec":{"containers":[{"name":"c","ports":[{"hostPort":70000}]}]}`,
		"a host port below 0":     `"spec":{"containers":[{"name":"c","ports":[{"hostPort":-1}]}]}`,
		"containers are a map":    `"spec":{"containers":{"c":{}}}`,
		"2,000 containers":        `"spec":{"containers":[` + repeated(`{"name":"c"}`, 2_000) + `]}`,
	} {
		all[testbed.ReservePath+": "+name] = badRequest{path: testbed.ReservePath, body: gang(podWith(okMeta, spec), okNodes)}
	}
	return all
}

func badNames() map[string]badRequest {
	names := map[string]string{
		"missing":           `""`,
		"a number":          `7`,
		"with a NUL":        `"bad\u0000"`,
		"with a line break": `"bad\nlevel=info"`,
		"in capitals":       `"BAD"`,
		"a path":            `"../nodes/node-0"`,
		"of 300 bytes":      `"` + strings.Repeat("x", 300) + `"`,
		"half a rune":       `"\ud800"`,
	}
	all := map[string]badRequest{}
	for name, value := range names {
		all[testbed.ReservePath+": a pod's name "+name] = badRequest{path: testbed.ReservePath, body: gang(podNamed(value), okNodes)}
		all[testbed.BindPath+": a pod's name "+name] = badRequest{path: testbed.BindPath, body: binding(`"default"`, value, `"u"`, `"node-0"`)}
		all[testbed.BindPath+": a node's name "+name] = badRequest{path: testbed.BindPath, body: binding(`"default"`, `"p"`, `"u"`, value)}
	}
	return all
}

func badExtenderCalls() map[string]badRequest {
	bodies := map[string]string{
		"no pod":                  `{"NodeNames":["node-0"]}`,
		"the pod is null":         candidates("null", okNodes),
		"the pod is a list":       candidates("[]", okNodes),
		"a pod without a UID":     candidates(podWith(`"metadata":{"namespace":"default","name":"p"}`, okSpec), okNodes),
		"a pod without namespace": candidates(podWith(`"metadata":{"name":"p","uid":"u"}`, okSpec), okNodes),
		"a pod without a name":    candidates(podWith(`"metadata":{"namespace":"default","uid":"u"}`, okSpec), okNodes),
		"a UID of 1,000 bytes":    candidates(podWith(`"metadata":{"namespace":"default","name":"p","uid":"`+strings.Repeat("u", 1000)+`"}`, okSpec), okNodes),
		"no nodes":                `{"Pod":` + okPod + `}`,
		"nodes are numbers":       candidates(okPod, `[1,2]`),
		"nodes are a string":      candidates(okPod, `"node-0"`),
		"nodes without names":     `{"Pod":` + okPod + `,"Nodes":{"items":[{"metadata":{}}]}}`,
		"nodes are no list":       `{"Pod":` + okPod + `,"Nodes":[]}`,
		"containers are a number": candidates(podWith(okMeta, `"spec":{"containers":1}`), okNodes),
	}
	all := map[string]badRequest{}
	for _, path := range []string{testbed.FilterPath, testbed.PrioritizePath} {
		for name, body := range bodies {
			all[path+": "+name] = badRequest{path: path, body: body}
		}
	}
	for name, body := range map[string]string{
		"no pod":                     `{"NodeNameToMetaVictims":{}}`,
		"a pod without a UID":        `{"Pod":{"metadata":{"namespace":"default","name":"p"}},"NodeNameToMetaVictims":{}}`,
		"victims are a list":         `{"Pod":` + okPod + `,"NodeNameToMetaVictims":[]}`,
		"a node's victims are text":  `{"Pod":` + okPod + `,"NodeNameToMetaVictims":{"node-0":"all"}}`,
		"a victim's UID is a number": `{"Pod":` + okPod + `,"NodeNameToMetaVictims":{"node-0":{"Pods":[{"UID":7}]}}}`,
	} {
		all[testbed.PreemptPath+": "+name] = badRequest{path: testbed.PreemptPath, body: body}
	}
	return all
}

func badBinds() map[string]badRequest {
	all := map[string]badRequest{}
	for name, body := range map[string]string{
		"no pod":                 `{"Node":"node-0"}`,
		"no UID":                 `{"PodNamespace":"default","PodName":"p","Node":"node-0"}`,
		"no node":                `{"PodNamespace":"default","PodName":"p","PodUID":"u"}`,
		"no namespace":           `{"PodName":"p","PodUID":"u","Node":"node-0"}`,
		"a namespace as a path":  binding(`"../default"`, `"p"`, `"u"`, `"node-0"`),
		"a UID with a space":     binding(`"default"`, `"p"`, `"u u"`, `"node-0"`),
		"a UID with a NUL":       binding(`"default"`, `"p"`, `"\u0000"`, `"node-0"`),
		"a UID of 100,000 bytes": binding(`"default"`, `"p"`, `"`+strings.Repeat("u", 100_000)+`"`, `"node-0"`),
	} {
		request := badRequest{path: testbed.BindPath, body: body}
		if len(body) > bindLimit {
			request.status = http.StatusRequestEntityTooLarge
		}
		all[testbed.BindPath+": "+name] = request
	}
	all[testbed.BindPath+": a pod nobody knows"] = badRequest{
		path: testbed.BindPath, body: binding(`"default"`, `"no-such-pod"`, `"u"`, `"node-0"`), status: http.StatusOK,
	}
	all[testbed.BindPath+": a namespace nobody knows"] = badRequest{
		path: testbed.BindPath, body: binding(`"nowhere"`, `"no-such-pod"`, `"u"`, `"node-0"`), status: http.StatusOK,
	}
	return all
}

func badReads() map[string]badRequest {
	all := map[string]badRequest{}
	for path, status := range map[string]int{
		testbed.NodesPath + "?limit=0":                      http.StatusBadRequest,
		testbed.NodesPath + "?limit=-5":                     http.StatusBadRequest,
		testbed.NodesPath + "?limit=99999999999999999999":   http.StatusBadRequest,
		testbed.NodesPath + "?limit=1&limit=2":              http.StatusBadRequest,
		testbed.NodesPath + "?overcommitted=perhaps":        http.StatusBadRequest,
		testbed.NodesPath + "?shape=round":                  http.StatusBadRequest,
		testbed.NodesPath + "?limit=%zz":                    http.StatusBadRequest,
		testbed.NodesPath + "/no-such-node":                 http.StatusNotFound,
		testbed.NodesPath + "/%00":                          http.StatusNotFound,
		testbed.NodesPath + "/..%2f..%2fetc%2fpasswd":       http.StatusNotFound,
		testbed.NodesPath + "/node-0?watch=true":            http.StatusBadRequest,
		testbed.AllocationsPath + "?state=Gone":             http.StatusBadRequest,
		testbed.AllocationsPath + "?pod=%00":                http.StatusBadRequest,
		testbed.AllocationsPath + "?node=" + long(2000):     http.StatusBadRequest,
		testbed.ExplainPath:                                 http.StatusBadRequest,
		testbed.ExplainPath + "?namespace=default":          http.StatusBadRequest,
		testbed.ExplainPath + "?pod=no-such-pod":            http.StatusNotFound,
		testbed.ExplainPath + "?pod=a&pod=b":                http.StatusBadRequest,
		testbed.WatchPath + "?since=yesterday":              http.StatusBadRequest,
		testbed.ReservationsPath + "/of/nobody":             http.StatusNotFound,
		"/v1/%2e%2e/%2e%2e/etc/passwd":                      http.StatusNotFound,
		"/v2/nodes":                                         http.StatusNotFound,
		"/":                                                 http.StatusNotFound,
		"/debug/pprof/":                                     http.StatusNotFound,
		testbed.FilterPath + "/":                            http.StatusNotFound,
		testbed.OpenAPIPath + "?version=3":                  http.StatusBadRequest,
		testbed.NodesPath + "?continue=" + long(1025) + "&": http.StatusBadRequest,
	} {
		all["GET "+path] = badRequest{method: http.MethodGet, path: path, status: status}
	}
	return all
}

func long(n int) string { return strings.Repeat("x", n) }

func badMethods() map[string]badRequest {
	all := map[string]badRequest{}
	for path, methods := range map[string][]string{
		testbed.FilterPath:       {http.MethodGet, http.MethodPut, http.MethodDelete},
		testbed.PrioritizePath:   {http.MethodGet},
		testbed.PreemptPath:      {http.MethodGet},
		testbed.BindPath:         {http.MethodGet, http.MethodPatch},
		testbed.ReservePath:      {http.MethodGet, http.MethodDelete, "MAKEROOM"},
		testbed.UnreservePath:    {http.MethodGet},
		testbed.WhatIfPath:       {http.MethodGet},
		testbed.NodesPath:        {http.MethodPost, http.MethodDelete},
		testbed.NodesPath + "/a": {http.MethodPut},
		testbed.AllocationsPath:  {http.MethodDelete},
		testbed.ExplainPath:      {http.MethodPost},
		testbed.WatchPath:        {http.MethodPost},
		testbed.MetricsPath:      {http.MethodPost},
		"/readyz":                {http.MethodDelete},
		testbed.OpenAPIPath:      {http.MethodPut},
	} {
		for _, method := range methods {
			all[method+" "+path] = badRequest{method: method, path: path, body: "{}", status: http.StatusMethodNotAllowed}
		}
	}
	return all
}
