//! Tests of an image with a small dynamically linked program.

use super::super::tests::{DistTestFolder, test_release};
use super::*;

/// Linked with the C library, and prints its arguments.
const STAND_IN: &str = "/bin/echo";

fn pack_test_image(scene: &DistTestFolder, name: &str) -> PathBuf {
    let into = scene.0.join(name);
    fs::create_dir_all(&into).unwrap();
    pack_image(&ImageProgram { binary: Path::new(STAND_IN), licence: "Do what you like.\n" }, &test_release(), &into)
        .unwrap()
}

#[test]
fn image_holds_the_program_with_all_libraries_and_runs() {
    let scene = DistTestFolder::new("image");
    let archive = pack_test_image(&scene, "out");
    assert_eq!(archive.file_name().unwrap(), "unskew-1.2.3-x86_64.oci.tar");
    let image = unpack_image(&archive, &scene.0.join("scratch")).unwrap();
    assert_eq!(image.run_program(&["hello"]).unwrap(), "hello\n");
    let found = super::super::tests::files_with_modes(&image.root);
    for path in ["usr/bin/unskew 755", "etc/nsswitch.conf 644", "etc/passwd 644", "usr/share/doc/libc6/copyright 644"] {
        assert!(found.contains(path), "{path} is not in {found:#?}");
    }
    assert!(found.iter().any(|path| path.ends_with("libc.so.6 755")), "{found:#?}");
    assert!(!scene.0.join("out/image-stage").exists());
}

#[test]
fn image_index_names_manifest_config_and_layer() {
    let scene = DistTestFolder::new("image-index");
    unpack_image(&pack_test_image(&scene, "out"), &scene.0.join("scratch")).unwrap();
    let layout = scene.0.join("scratch/layout");
    let read = |file: &Path| -> Value { serde_json::from_slice(&fs::read(file).unwrap()).unwrap() };
    let index = read(&layout.join("index.json"));
    let manifest = &index["manifests"][0];
    assert_eq!(manifest["mediaType"], MANIFEST_TYPE);
    for key in ["org.opencontainers.image.ref.name", "io.containerd.image.name"] {
        assert_eq!(manifest["annotations"][key], "localhost/unskew:1.2.3");
    }
    let blob =
        |descriptor: &Value| layout.join("blobs").join(descriptor["digest"].as_str().unwrap().replacen(':', "/", 1));
    let manifest = read(&blob(manifest));
    assert_eq!((&manifest["schemaVersion"], &manifest["layers"][0]["mediaType"]), (&json!(2), &json!(LAYER_TYPE)));
    let config = read(&blob(&manifest["config"]));
    assert_eq!((&config["architecture"], &config["os"]), (&json!("amd64"), &json!("linux")));
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/unskew"]));
    // Every blob is referenced.
    assert_eq!(fs::read_dir(layout.join("blobs/sha256")).unwrap().count(), 3);
}

#[test]
fn image_bytes_are_reproducible() {
    let scene = DistTestFolder::new("image-same");
    let (first, second) = (pack_test_image(&scene, "first"), pack_test_image(&scene, "second"));
    assert!(fs::read(first).unwrap() == fs::read(second).unwrap());
}

/// Unpacks an image, changes its layout, packs it again and returns the error of unpacking it.
fn open_error_after_change(name: &str, change: impl Fn(&Path)) -> String {
    let scene = DistTestFolder::new(name);
    let layout = scene.0.join("layout");
    archives::extract_tar(&pack_test_image(&scene, "out"), &layout).unwrap();
    change(&layout);
    let changed = scene.0.join("changed.tar");
    archives::create_tar(&layout, "0", &changed).unwrap();
    unpack_image(&changed, &scene.0.join("scratch")).err().unwrap().to_string()
}

/// Finds the blob whose content matches.
fn blob(layout: &Path, is_it: impl Fn(&[u8]) -> bool) -> PathBuf {
    let files = fs::read_dir(layout.join("blobs/sha256")).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|file| is_it(&fs::read(file).unwrap())).unwrap()
}

#[test]
fn image_with_wrong_digest_size_or_blob_is_rejected() {
    let is_layer = |bytes: &[u8]| bytes.starts_with(&[0x1f, 0x8b]);
    let changed = open_error_after_change("image-changed", |layout| {
        let file = blob(layout, is_layer);
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(file, bytes).unwrap();
    });
    assert!(changed.contains(" has digest "), "{changed}");
    let longer = open_error_after_change("image-longer", |layout| {
        let file = blob(layout, is_layer);
        let mut bytes = fs::read(&file).unwrap();
        bytes.push(0);
        fs::write(file, bytes).unwrap();
    });
    assert!(longer.contains(" bytes, expected "), "{longer}");
    let missing = open_error_after_change("image-missing", |layout| fs::remove_file(blob(layout, is_layer)).unwrap());
    assert!(missing.contains("is not in the archive"), "{missing}");
}

#[test]
fn image_without_a_linked_library_does_not_run() {
    let scene = DistTestFolder::new("image-library");
    let image = unpack_image(&pack_test_image(&scene, "out"), &scene.0.join("scratch")).unwrap();
    let library =
        libraries::linked_libraries(Path::new(STAND_IN)).unwrap().into_iter().find(|file| file.ends_with("libc.so.6"));
    let library = library.unwrap();
    fs::remove_file(image.root.join(library.strip_prefix("/").unwrap())).unwrap();
    let error = image.run_program(&["hello"]).unwrap_err().to_string();
    assert!(error.contains("libc.so.6, which is not in it") || error.contains("finds no libraries"), "{error}");
}

#[test]
fn deploy_manifests_name_the_built_image() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for file in ["static-pod.yaml", "gateway-static-pod.yaml"] {
        let manifest = fs::read_to_string(root.join("docs/deploy").join(file)).unwrap();
        let image = format!("image: localhost/unskew:{}\n", env!("CARGO_PKG_VERSION"));
        assert!(manifest.contains(&image), "{file} has no `{}`", image.trim());
    }
}
