// Package main is histories, which writes what random ledgers tell those who watch, and what they answer to /v1/nodes
// then, for the tests of the page: it has to come to the same account.
//
//	go run ./test/histories -seed 1 -count 20 > histories.json
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/rest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/steady"
	"github.com/globalreserve/globalreserve/test/ledgertest"
)

// stage is one connection: the lines that a watcher is sent until it has caught up, and all nodes then.
type stage struct {
	Lines []json.RawMessage
	Nodes []reserver.Node
}

func main() {
	seed := flag.Int("seed", 1, "of the first history")
	count := flag.Int("count", 20, "how many histories")
	flag.Parse()
	histories := make([][]stage, *count)
	for i := range histories {
		histories[i] = rapid.Custom(history).Example(*seed + i)
	}
	if err := json.NewEncoder(os.Stdout).Encode(histories); err != nil {
		fmt.Fprintln(os.Stderr, "histories:", err)
		os.Exit(1)
	}
}

// history has a watcher come back again and again, also with a revision that is older than the last it was told.
func history(t *rapid.T) []stage {
	l := ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 4096})
	w := ledgertest.NewWorld(l.Table())
	w.Devices = rapid.Bool().Draw(t, "devices")
	w.ListAll()
	serving, stop := context.WithCancel(context.Background())
	api := rest.New(rest.Options{
		Ledger: l.Reader, Clock: steady.Process, Metrics: metrics.New(), Serving: serving,
		Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
	})
	router := httpjson.NewRouter()
	api.Register(router)
	server := httptest.NewServer(auth.Insecure(router))
	defer func() {
		stop()
		server.Close()
	}()
	explorer := ledgertest.NewExplorer(t, l, func(*ledger.Ledger) error { return nil })
	steps := explorer.Actions(w)
	var told []uint64
	var stages []stage
	for range 12 {
		for range rapid.IntRange(1, 12).Draw(t, "length") {
			rapid.SampledFrom(steps).Draw(t, "step")(t)
			explorer.Check(t)
		}
		after := ""
		if len(told) > 0 {
			after = fmt.Sprintf("?revision=%d", told[max(0, len(told)-rapid.IntRange(1, 2).Draw(t, "back"))])
		}
		next, err := watch(server.URL, after, l.Revision())
		if err != nil {
			t.Fatal(err)
		}
		stages, told = append(stages, next), append(told, l.Revision())
	}
	return stages
}

// watch reads what a watcher is told until a revision.
func watch(url, after string, until uint64) (s stage, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/watch"+after, http.NoBody)
	if err != nil {
		return s, err
	}
	request.Header.Set("Accept", reserver.BatchMediaType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var batch reserver.WatchBatch
		if err := json.Unmarshal(lines.Bytes(), &batch); err != nil {
			return s, fmt.Errorf("%s: %w", lines.Bytes(), err)
		}
		s.Lines = append(s.Lines, append(json.RawMessage{}, lines.Bytes()...))
		if batch.CaughtUp && batch.Revision == until {
			break
		}
	}
	s.Nodes, err = nodes(ctx, url)
	return s, err
}

func nodes(ctx context.Context, url string) ([]reserver.Node, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/nodes", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer reserver.NodesAnswer
	return answer.Nodes, json.NewDecoder(response.Body).Decode(&answer)
}
