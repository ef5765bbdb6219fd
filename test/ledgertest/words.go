package ledgertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// words is one line of a transcript: plain words first, then key=value pairs.
type words struct {
	plain []string
	pairs map[string]string
	used  map[string]bool
	err   error // the first thing that could not be read
}

func parseWords(line string) *words {
	w := &words{pairs: map[string]string{}, used: map[string]bool{}}
	for _, word := range strings.Fields(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			w.pairs[key] = value
		} else {
			w.plain = append(w.plain, word)
		}
	}
	return w
}

// check returns what was wrong with the line, or what nobody asked for.
func (w *words) check() error {
	for key := range w.pairs {
		if !w.used[key] && w.err == nil {
			w.err = fmt.Errorf("%s= means nothing here", key)
		}
	}
	return w.err
}

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// word returns a plain word, "" where the line has not so many.
func (w *words) word(i int) string {
	if i < len(w.plain) {
		return w.plain[i]
	}
	return ""
}

// flag reports whether a plain word is there.
func (w *words) flag(name string) bool { return slices.Contains(w.plain, name) }

// value returns the value of a key, "" where there is none.
func (w *words) value(key string) string {
	w.used[key] = true
	return w.pairs[key]
}

func (w *words) number(key string) int64 {
	text := w.value(key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.fail("%s=%s is no number", key, text)
	}
	return n
}

func (w *words) list(key string) []string {
	if text := w.value(key); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

func (w *words) duration(key string) (d time.Duration, given bool) {
	text := w.value(key)
	if text == "" {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		w.fail("%s=%s is no duration", key, text)
	}
	return d, true
}

// uids returns a list of pods as their UIDs.
func (w *words) uids(key string) []types.UID {
	var uids []types.UID
	for _, pod := range w.list(key) {
		uids = append(uids, podRef(pod).UID)
	}
	return uids
}

// podRef reads a@1 as the pod ns/a with the UID a@1, and a as one without a UID.
func podRef(text string) ledger.PodRef {
	ref := ledger.PodRef{Namespace: "ns", Name: text}
	if name, _, ok := strings.Cut(text, "@"); ok {
		ref.Name, ref.UID = name, types.UID(text)
	}
	return ref
}

func podText(ref ledger.PodRef) string {
	if ref.UID != "" {
		return string(ref.UID)
	}
	return ref.Name
}

// amounts reads every pair whose key is a resource. Observations give unknown resources a column; decisions list them.
func (w *words) amounts(table *resources.Table, observed bool) (amounts []resources.Amount,
	unlisted []resources.NamedAmount,
) {
	for key := range w.pairs {
		name := v1.ResourceName(key)
		if key != "cpu" && key != "memory" && key != "pods" && !strings.Contains(key, "/") {
			continue
		}
		value := w.number(key)
		column, ok := table.Lookup(name)
		if !ok && observed {
			column, ok = table.Offer(name)
		}
		if ok {
			amounts = append(amounts, resources.Amount{Column: column, Value: value})
		} else {
			unlisted = append(unlisted, resources.NamedAmount{Name: name, Value: value})
		}
	}
	slices.SortFunc(amounts, func(a, b resources.Amount) int { return int(a.Column) - int(b.Column) })
	return amounts, unlisted
}

// request reads what a pod asks for: its amounts, ports=TCP/80,UDP/10.0.0.1/53 and the word "tolerates".
func (w *words) request(table *resources.Table, observed bool) *resources.Request {
	w.pairs["pods"] = "1"
	r := &resources.Request{ToleratesUnschedulable: w.flag("tolerates")}
	r.Amounts, r.Unlisted = w.amounts(table, observed)
	r.ByDRA = w.columns(table, "by-dra")
	for _, text := range w.list("ports") {
		parts := strings.Split(text, "/")
		number, err := strconv.ParseInt(parts[len(parts)-1], 10, 32)
		if err != nil || len(parts) < 2 || len(parts) > 3 {
			w.fail("ports=%s: want TCP/80 or TCP/10.0.0.1/80", text)
			continue
		}
		port := resources.HostPort{
			PortKey: resources.PortKey{Protocol: v1.Protocol(parts[0]), Port: int32(number)},
			IP:      "0.0.0.0",
		}
		if len(parts) == 3 {
			port.IP = parts[1]
		}
		r.Ports = append(r.Ports, port)
	}
	return r
}

// placement reads "pod node cpu=1 by=scheduler caller=who by-dra=example.com/gpu pod-to-come no-dra" and what claimed
// reads.
func (w *words) placement(table *resources.Table, first int) ledger.Placement {
	p := ledger.Placement{
		Pod: podRef(w.word(first)), Node: w.word(first + 1), Request: w.request(table, false),
		Scheduler: w.value("by"), Caller: w.value("caller"), Priority: int32(w.number("priority")), Slots: w.slots("slots"),
		PodToCome: w.flag("pod-to-come"), NoDRA: w.flag("no-dra"), Devices: w.claimed(),
	}
	p.Request = p.Devices.Counted(table, p.Request)
	return p
}
