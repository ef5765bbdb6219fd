package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// registry is where the API server keeps its objects; '0' follows '/'.
const registry, registryEnd = "/registry/", "/registry0"

var etcdClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: nodeWriters}}

// etcdKeys returns the key of every object, with the revision of its last change.
func (c *ControlPlane) etcdKeys(ctx context.Context) (map[string]string, error) {
	var answer struct {
		Kvs []struct {
			Key         []byte `json:"key"`
			ModRevision string `json:"mod_revision"`
		} `json:"kvs"`
	}
	err := c.EtcdCall(ctx, "range", map[string]any{
		"key": []byte(registry), "range_end": []byte(registryEnd), "keys_only": true,
	}, &answer)
	if err != nil {
		return nil, err
	}
	revisions := make(map[string]string, len(answer.Kvs))
	for _, object := range answer.Kvs {
		revisions[string(object.Key)] = object.ModRevision
	}
	return revisions, nil
}

func (c *ControlPlane) etcdDelete(ctx context.Context, key string) error {
	return c.EtcdCall(ctx, "deleterange", map[string]any{"key": []byte(key)}, &struct{}{})
}

// CompactEtcd has etcd forget all but the newest state of each object. Who watches from an older version, and is not
// served from what the API server remembers itself, has to list anew.
func (c *ControlPlane) CompactEtcd(ctx context.Context) error {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.EtcdCall(ctx, "range", map[string]any{"key": []byte(registry), "limit": 1, "keys_only": true},
		&now); err != nil {
		return err
	}
	return c.EtcdCall(ctx, "compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, &struct{}{})
}

// EtcdCall makes one call of etcd's JSON gateway, which wants bytes as encoding/json writes them. What is written there
// is written behind the API server's back.
func (c *ControlPlane) EtcdCall(ctx context.Context, call string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+"/v3/kv/"+call, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := etcdClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s: %s", call, response.Status, content)
	}
	return json.Unmarshal(content, answer)
}
