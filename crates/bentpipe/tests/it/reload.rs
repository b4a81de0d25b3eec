//! SIGHUP makes the command read its file again; a faulty file changes nothing.

use super::gateway::Gateway;

#[test]
fn a_hangup_reads_the_file_again_and_a_wrong_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(at.join("a.key"), key).unwrap();
    let air = format!(
        "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:9\"\n\
         peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n"
    );
    let ground = format!(
        "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{key}\"\nrate = \"2 Mbit/s\"\n\
         [dns]\nservers = [\"127.0.0.1:9\"]\n"
    );
    for (what, text) in [("air", air), ("ground", ground)] {
        let file = at.join(format!("{what}.toml"));
        std::fs::write(&file, &text).unwrap();
        let gateway = Gateway::start(what, at);
        gateway.says("serving");
        for wrong in ["ceil = \"fast\"", "rate = \"2 Mbit/s\"\nceil = \"1 Mbit/s\""] {
            std::fs::write(&file, format!("{text}[classes.assured]\n{wrong}\n")).unwrap();
            gateway.hang_up();
            gateway.says("the configuration stays as it was");
        }
        std::fs::write(&file, format!("{text}[classes.assured]\nceil = \"1 Mbit/s\"\n")).unwrap();
        gateway.hang_up();
        gateway.says("are those of the file");
    }
}
