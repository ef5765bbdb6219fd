package apianswers

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// names are those of what is another in each server.
type names struct {
	uids, versions []string // in the order in which they were seen
	next           string   // how the last list goes on
}

var (
	aTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	aUID  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	// inText is where a text tells a version.
	inText = regexp.MustCompile(`(?i)(resource ?version\D*|current: |\()(\d+)`)
	asked  = regexp.MustCompile(`\$(uid|v)(\d+)|\$continue`)
)

// put puts what a request names in its place.
func (n *names) put(text string) string {
	return asked.ReplaceAllStringFunc(text, func(name string) string {
		m := asked.FindStringSubmatch(name)
		list := map[string][]string{"": {n.next}, "uid": n.uids, "v": n.versions}[m[1]]
		if i, _ := strconv.Atoi(m[2]); max(i, 1) <= len(list) {
			return list[max(i, 1)-1]
		}
		return name
	})
}

// fields adds the fields of a part of an object, by their paths, with values that are the same in each server. What
// is empty is as what is not there. exact is whether a version is that of an object.
func (n *names) fields(all map[string]string, path string, part any, exact bool) {
	switch part := part.(type) {
	case map[string]any:
		if strings.HasSuffix(path, ".fieldsV1") {
			text, _ := json.Marshal(part) // it was JSON
			all[path] = n.text(path, string(text), exact)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(part)) {
			n.fields(all, strings.TrimPrefix(path+"."+key, "."), part[key], exact)
		}
	case []any:
		for i := range part {
			n.fields(all, fmt.Sprintf("%s[%d]", path, i), part[i], exact)
		}
	case string:
		if text := n.text(path, part, exact); text != "" {
			all[path] = strings.ReplaceAll(text, "\n", `\n`)
		}
	case nil:
	default:
		all[path] = fmt.Sprint(part)
	}
}

func (n *names) text(path, text string, exact bool) string {
	switch {
	case path == "metadata.continue" && text != "":
		n.next = text
		return "$continue"
	case path == "metadata.resourceVersion" && text != "":
		return n.version(text, exact)
	case aTime.MatchString(text):
		return "T"
	}
	text = aUID.ReplaceAllStringFunc(text, func(uid string) string {
		return fmt.Sprintf("uid%d", index(&n.uids, uid)+1)
	})
	if path != "message" && !strings.HasSuffix(path, ".message") {
		return text
	}
	return inText.ReplaceAllStringFunc(text, func(found string) string {
		m := inText.FindStringSubmatch(found)
		return m[1] + n.version(m[2], false)
	})
}

// version names one of an object, or says after which of those another one comes.
func (n *names) version(text string, exact bool) string {
	number, _ := strconv.Atoi(text)
	newest, at := 0, 0
	for i, version := range n.versions {
		if known, _ := strconv.Atoi(version); known <= number && known > newest {
			newest, at = known, i+1
		}
	}
	switch known := len(n.versions); {
	case !exact:
		return fmt.Sprintf(">=v%d", at)
	case index(&n.versions, text) == known && at < known:
		return fmt.Sprintf("v%d, which is older than v%d", known+1, known)
	default:
		return fmt.Sprintf("v%d", index(&n.versions, text)+1)
	}
}

// index is where a list has a text. It is added where it is not there.
func index(list *[]string, text string) int {
	if !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
	return slices.Index(*list, text)
}
