package extender

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/policy"
)

// FuzzNodeNames compares the splitting of names with encoding/json.
func FuzzNodeNames(f *testing.F) {
	for _, seed := range []string{
		`[]`, `["a","b"]`, `[ "a\"b\\" , "é\u0041\ud83d\ude00" ]`, `["\\","\\\\\"",""]`, `[1]`,
		`null`, `["a",null]`, `"a"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body := `{"NodeNames":` + text + `}`
		var got args
		if unmarshal(body, &got) != nil {
			return
		}
		var want extenderv1.ExtenderArgs
		require.NoError(t, json.Unmarshal([]byte(body), &want), "encoding/json refuses what was accepted")
		require.Equal(t, want.NodeNames != nil, got.NodeNames.names != nil)
		if want.NodeNames != nil {
			assert.Equal(t, *want.NodeNames, got.NodeNames.names)
		}
	})
}

// FuzzVerbs: whatever is sent, the answer is whole JSON, a 200 or a 4xx, and the ledger is as before.
func FuzzVerbs(f *testing.F) {
	pod, err := json.Marshal(newPod("p"))
	require.NoError(f, err)
	for _, seed := range []string{
		`{"Pod":%s,"NodeNames":["n","x"]}`, `{"Pod":%s,"Nodes":{"items":[{"metadata":{"name":"n"}}]}}`,
		`{"Pod":%s,"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"v"}],"NumPDBViolations":1},"m":null}}`,
		`{"Pod":%s,"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"v"}},null]}}}`,
		`{"Pod":%s,"pod":{"metadata":null},"NodeNames":[]}`,
	} {
		f.Add(fmt.Sprintf(seed, pod))
	}
	f.Add(`{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n"}`)
	f.Fuzz(func(t *testing.T, body string) {
		w := newWorld(t)
		w.Log.SetLevel(logrus.InfoLevel)
		w.node("n", 2000, 2e9)
		w.run("v", "n", 1500, 0)
		w.score(policy.Prioritize{
			Resources: []policy.ResourceWeight{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 2}}, ReservationMatch: 10,
		})
		before := w.Ledger.Revision()
		for verb, into := range map[string]any{
			"filter": &extenderv1.ExtenderFilterResult{}, "prioritize": &extenderv1.HostPriorityList{},
			"preempt": &extenderv1.ExtenderPreemptionResult{}, "bind": &extenderv1.ExtenderBindingResult{},
		} {
			answer := w.post(verb, body)
			if answer.Code != http.StatusOK {
				require.GreaterOrEqual(t, answer.Code, 400, verb)
				require.Less(t, answer.Code, 500, "%s: %s", verb, answer.Body)
			} else if strings.HasPrefix(answer.Body.String(), "{") {
				require.NoError(t, json.Unmarshal(answer.Body.Bytes(), into), verb)
			}
			require.True(t, json.Valid(answer.Body.Bytes()), verb)
			for _, line := range w.Logs.AllEntries() { // of binds: other verbs are logged for debugging only
				require.NotContains(t, fmt.Sprint(line.Data["pod"], line.Data["uid"], line.Data["node"]), "\n")
			}
		}
		require.Equal(t, before, w.Ledger.Revision())
	})
}
