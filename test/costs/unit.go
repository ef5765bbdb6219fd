package costs

import (
	"encoding/json"
	"fmt"
	"strings"
)

// unit is a fixed piece of work of the kinds that the hot paths consist of: text is parsed, memory allocated, names
// looked up, rows of numbers walked. It must stay what it is: all of baseline.json is in units of it.
type unit struct {
	text  []byte
	names []string
	index map[string]int
	rows  []int64
	sum   int64 // so that nothing is optimized away
}

func newUnit() *unit {
	u := &unit{index: map[string]int{}, rows: make([]int64, 1<<17)}
	for i := range 4096 {
		u.names = append(u.names, fmt.Sprintf("node-%d.example.internal", i))
		u.index[u.names[i]] = i
	}
	text, err := json.Marshal(map[string]any{
		"names": u.names[:64], "text": strings.Repeat("abcdefgh", 64),
		"numbers": []int{1, 2, 3},
	})
	if err != nil {
		panic("costs: " + err.Error())
	}
	u.text = text
	return u
}

// do takes some hundred microseconds.
func (u *unit) do() {
	for range 4 {
		var parsed struct {
			Names   []string
			Text    string
			Numbers []int64
		}
		if err := json.Unmarshal(u.text, &parsed); err != nil {
			panic("costs: " + err.Error())
		}
		u.sum += int64(len(parsed.Names))
	}
	for _, name := range u.names {
		u.sum += int64(u.index[name])
	}
	for _, value := range u.rows {
		if value > u.sum {
			u.sum--
		}
	}
}
